"""A training whose step is known, with one cause of loss in it, as $WORLDSIZE_PLANTED says: KIND, or KIND:RANK:MS.

With KIND `none` each step sleeps for 30 ms in forward and computes next to nothing, so that any number of workers
scales as it should. Without $WORLDSIZE_PLANTED it computes.
"""

import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

WORK_S = 0.03
PERIOD = 10
"""Of the stall that comes every so many steps."""


def planted(kind: str) -> float:
    """Seconds that this rank takes longer for a kind of work."""
    what, _, rest = os.environ.get("WORLDSIZE_PLANTED", "").partition(":")
    rank, _, milliseconds = rest.partition(":")
    here = os.environ.get("RANK", "0")
    return float(milliseconds) / 1e3 if what == kind and rank in ("all", here) else 0.0


def shape() -> str:
    """What the model is made of."""
    return os.environ.get("WORLDSIZE_PLANTED", "").partition(":")[0]


class Net(nn.Module):
    """Sleeps, as if it computed on a core of its own."""

    def __init__(self) -> None:
        super().__init__()
        if shape() == "many":
            self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(100)))
        elif shape() == "buffers":
            self.layers = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
            self.register_buffer("table", torch.zeros(4_000_000))
        else:
            width = {"": 512, "large": 1024}.get(shape(), 64)
            self.layers = nn.Sequential(nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 8))
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        """Scores, after a while."""
        self.steps += 1
        stall = planted("stall") if self.steps % PERIOD == 0 else 0.0
        time.sleep((WORK_S if shape() else 0.0) + planted("forward") + stall)
        made: Tensor = self.layers(x)
        if planted("backward") and made.requires_grad:
            made.register_hook(late)
        return made


def late(gradient: Tensor) -> Tensor:
    """The same, after a while."""
    time.sleep(planted("backward"))
    return gradient


class Slow(torch.optim.SGD):
    """Takes its time where that is planted."""

    def step(self, closure: Any = None) -> Any:
        """One step."""
        time.sleep(planted("optimizer"))
        return super().step(closure)


class Planted:
    """The workload: `--workload diagnosis_workload.py:Planted`."""

    def model(self) -> nn.Module:
        """A small one, or of the shape that was asked for."""
        return Net()

    def batches(self, rank: int, world_size: int, local_batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Random numbers, after a while."""
        generator = torch.Generator().manual_seed(rank)
        while True:
            time.sleep(planted("data"))
            yield torch.randn(local_batch, 8, generator=generator), torch.randn(local_batch, 8, generator=generator)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """The mean square."""
        x, y = batch
        return nn.functional.mse_loss(model(x), y)

    def optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        """SGD."""
        return Slow(parameters, lr=0.01)
