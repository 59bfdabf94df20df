"""What is trained, as a trainer sees it: a model, its batches, a loss and an optimizer, and nothing of how they come.

There are three: the classifier of the settings (classifier.py), a class of the user's own (user_task.py), and the
replay of measured computing (replay.py).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.data import DataSet
from worldsize.results.replay import read_replay
from worldsize.training.classifier import Classifier
from worldsize.training.replay import ReplayTask
from worldsize.training.user_task import UserTask
from worldsize.wire import Sizes

Batch = Any
"""Tensors in tuples, lists and dicts; a classifier's is (inputs, labels)."""
Loss = Callable[[nn.Module, Batch], Tensor]


class Source(Protocol):
    """Training batches of one process."""

    @property
    def steps_per_epoch(self) -> int | None:
        """None where the length of an epoch is unknown."""

    @property
    def works_ahead(self) -> bool:
        """Whether batches may be made before they are asked for, by processes or threads."""

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """The batch of each step from `first_step` on; leaving it early leaves nothing behind."""
        ...


class Task(Protocol):
    """What one process trains. Batches are on the host until the trainer brings them to the device."""

    @property
    def sets_rate(self) -> bool:
        """Whether the learning rate is that of the settings; else it is the optimizer's own business."""

    @property
    def has_loss(self) -> bool:
        """Whether what backward begins at is a loss that is worth recording."""

    def model(self, seed: int) -> nn.Module:
        """A new model, its weights drawn from `seed`; torch's generator stays seeded."""
        ...

    def put(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model on its device, as it lies in memory there."""
        ...

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """What changes the weights."""
        ...

    def batches(self, rank: int, processes: int) -> Source:
        """What this process reads."""
        ...

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Any]:
        """The mean loss of a batch on its device, and the outputs that it comes from, where `right` needs them."""
        ...

    def right(self, outputs: Any, batch: Batch) -> Tensor | None:
        """How many samples were classified right; None where nothing is classified."""

    def order(self, batch: Batch) -> Tensor | None:
        """What tells in which order samples come; None where that is not followed."""

    def some_batch(self, samples: int, device: torch.device) -> Batch:
        """A batch of so many samples on a device, to look at what the model does with it."""
        ...

    def shares(self, batch: Batch, workers: int) -> Sequence[Batch]:
        """The batch of each worker, of a batch of a process that drives several."""
        ...

    def digests(self, batch: Batch, samples: int, length: int) -> list[str]:
        """Digests, of `length` bytes, of the first samples of a batch; none where samples are not compared."""
        ...

    def sizes(self, model: nn.Module, samples: int, device: torch.device) -> Sizes:
        """What the model and a worker's `samples` take, in bytes; the model is left as it is."""
        ...


def task_of(settings: CellSettings, data: DataSet | None, run: Path | None = None) -> Task:
    """The task of a cell; `data` is that of a classifier, and `run` has what a rehearsal replays.

    Raises UsageError for what cannot be trained.
    """
    if settings.replay is not None:
        assert run is not None, "a rehearsal has a run folder"
        return ReplayTask(settings, read_replay(run))
    return UserTask(settings) if data is None else Classifier(settings, data)
