"""The training loop that people write, as a job that takes turns: what worldsize is compared with.

Contiguous NCHW model, one image at a time through a DataLoader with two worker processes, SGD as in the
tutorials, on the cores that the placement gives to this worker and to its loader.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader, default_collate

from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.data.per_sample import ImageSamples
from worldsize.models import build_model
from worldsize.ranks.turns import Reply, Turn, Turns, run_turns

PREFETCHED = 4
"""Batches that two workers hold ready with DataLoader's default of two each."""

produced = multiprocessing.get_context("fork").Value("l", 0)


def counted(samples: list[Any]) -> Any:
    """Collate, and count the batches that the loader's processes have made."""
    batch = default_collate(samples)
    with produced.get_lock():
        produced.value += 1
    return batch


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job."""
    settings = CellSettings.model_validate(payload["settings"])
    os.sched_setaffinity(0, payload["cores"])
    torch.set_num_threads(len(payload["cores"]))
    loop = PlainLoop(settings)
    run_turns(turns, Reply(), loop.take)


class PlainLoop:
    """Model, loader and optimizer of the loop."""

    def __init__(self, settings: CellSettings) -> None:
        data = load_data(settings)
        self.model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed).train()
        for module in self.model.modules():
            if isinstance(module, torch.nn.ReLU):
                module.inplace = False
        self.optimizer = torch.optim.SGD(
            self.model.parameters(),
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        self.loader = DataLoader(
            ImageSamples(data.train, settings.seed, 0),  # type: ignore[arg-type]
            batch_size=settings.batch_size,
            shuffle=True,
            num_workers=2,
            collate_fn=counted,
            multiprocessing_context="fork",
        )
        self.stream = self._endless()
        self.consumed = 0

    def _endless(self) -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from self.loader

    def take(self, turn: Turn) -> Reply:
        """Some steps; the turn ends when the loader has made up for the batches that were taken.

        Else its processes would fill their queues during the turn of the other variant: on its cores, and
        for free in this one's next turn.
        """
        if turn.op != "steps":
            return Reply()
        start = time.perf_counter()
        for _ in range(turn.count):
            inputs, labels = next(self.stream)
            self.optimizer.zero_grad()
            loss = F.cross_entropy(self.model(inputs), labels)
            loss.backward()
            self.optimizer.step()
            loss.item()
        self.consumed += turn.count
        while produced.value < self.consumed + PREFETCHED:
            time.sleep(0.001)
        return Reply(step_s=[(time.perf_counter() - start) / turn.count] * turn.count)
