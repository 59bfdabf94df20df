"""What one rank repeats, as the loop sees it: it knows of steps, and nothing of what is in them."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from worldsize.measure.alignment import Offset
from worldsize.measure.timeline import Timeline
from worldsize.ranks.turns import Reply, Turn
from worldsize.results.memory_records import MemoryParts


class Group(Protocol):
    """The processes that do the work together."""

    @property
    def world_size(self) -> int:
        """How many they are."""


class World(Protocol):
    """Where a workload runs: what the loop asks of the `World` of a strategy (strategies/base.py)."""

    @property
    def channel(self) -> Group:
        """The processes."""

    @property
    def world_size(self) -> int:
        """N: workers, which is more than processes where one process drives several."""

    @property
    def device(self) -> torch.device:
        """Of this process."""

    @property
    def cores(self) -> tuple[tuple[int, ...], ...]:
        """Of each worker, where workers are threads of one process."""


class StepResult(Protocol):
    """What a step leaves. The tensors can be read once its end has passed, without waiting for later steps."""

    @property
    def epoch(self) -> int:
        """In which it was."""

    @property
    def samples(self) -> int:
        """Samples of this process."""

    @property
    def loss(self) -> Tensor | None:
        """Their mean loss; None for work that has none."""

    @property
    def right(self) -> Tensor | None:
        """How many of them were classified right; None where nothing is classified."""


class Workload(Protocol):
    """Work in steps, under a strategy, with state that can be kept and put back.

    The training of a classifier is one (training/workload.py). The loop (loop.py) gives it its turns, and times and
    records its steps.
    """

    @property
    def world(self) -> World:
        """In which it runs."""

    @property
    def timeline(self) -> Timeline:
        """Gets a mark at the end of each phase of a step."""

    @property
    def steps(self) -> int:
        """Steps of training that it has behind it, those before its checkpoint included."""

    @property
    def steps_per_epoch(self) -> int:
        """How many steps use each sample once."""

    @property
    def saves(self) -> bool:
        """Whether it writes checkpoints, so that a lost training can go on from one."""

    def step(self, *, synchronise: bool = True) -> StepResult:
        """Do the next step; without `synchronise` gradients stay this rank's own. Does not wait for the device."""

    def awake(self, turn: Turn) -> AbstractContextManager[None]:
        """What feeds the steps of this turn works within the context, and stands still outside of it."""

    def aside(self) -> AbstractContextManager[None]:
        """Undo on leaving whatever steps do within: they only measure."""

    def unseen(self) -> AbstractContextManager[None]:
        """No instruments of ours within, as far as all ranks have room for that."""

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        """Do a turn that is no steps: an evaluation, a proof, a checkpoint, a profile. `align` aligns clocks."""

    def memory(self) -> MemoryParts | None:
        """What the memory of this rank is made of; None where that is not known."""

    def close(self) -> None:
        """End what works for it."""
