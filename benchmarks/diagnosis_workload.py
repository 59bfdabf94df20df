"""A training whose step is known, with one cause of loss in it, as $WORLDSIZE_PLANTED says: KIND, or KIND:RANK:MS.

RANK is a number, `all`, or `several`: all of several workers, but not one alone. With KIND `none` each step sleeps for
30 ms in forward and computes next to nothing, so that any number of workers scales as it should. With `sound`
it sleeps for 100 ms, beside which what ddp costs one worker is 1 %; with `computing` it multiplies matrices instead.
"""

import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

WORK_S = 0.03
SLEEPS = {"sound": 0.1, "computing": 0.0}
SIZE = 256
DEEP_S = 0.005
PERIOD = 10
"""Of the stall that comes every so many steps."""


def planted(kind: str) -> float:
    """Seconds that this rank takes longer for a kind of work."""
    what, _, rest = os.environ.get("WORLDSIZE_PLANTED", "").partition(":")
    rank, _, milliseconds = rest.partition(":")
    here, world_size = os.environ.get("RANK", "0"), int(os.environ.get("WORLD_SIZE", "1"))
    here_too = ("all", here, "several" if world_size > 1 else "")
    return float(milliseconds) / 1e3 if what == kind and rank in here_too else 0.0


def shape() -> str:
    """What the model is made of."""
    return os.environ.get("WORLDSIZE_PLANTED", "").partition(":")[0]


def burn(seconds: float) -> None:
    """Compute for so long."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


@torch.no_grad()
def multiply(square: Tensor) -> None:
    """Multiply matrices that fit into the cache of a core: 0.1 s at 50 GFLOP/s."""
    made = square
    for _ in range(150):
        made = made @ square


def collect(seconds: float) -> None:
    """Collect garbage for about so long."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        gc.collect()


class Late(torch.autograd.Function):
    """The identity, whose backward takes a while."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """The same."""
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        """The same, after a while."""
        time.sleep(DEEP_S)
        return gradients[0]


class Deep(nn.Module):
    """Layers whose gradients come one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 256), *(nn.Linear(256, 256) for _ in range(8)), nn.Linear(256, 8)])

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        for layer in self.layers:
            x = Late.apply(layer(x))  # type: ignore[no-untyped-call]
        return x


class Net(nn.Module):
    """Sleeps, as if it computed on a core of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: nn.Module
        if shape() == "many":
            self.layers = nn.Sequential(*(nn.Linear(8, 8) for _ in range(100)))
        elif shape() == "buffers":
            self.layers = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 8))
            self.register_buffer("table", torch.zeros(4_000_000))
        elif shape() == "deep":
            self.layers = Deep()
        elif shape() == "huge":
            self.layers = nn.Sequential(nn.Linear(8, 2048), nn.Linear(2048, 2048, bias=False), nn.Linear(2048, 8))
        else:
            width = 1024 if shape() == "large" else 64
            self.layers = nn.Sequential(nn.Linear(8, width), nn.Linear(width, width), nn.Linear(width, 8))
        self.steps = 0
        self.square = torch.eye(SIZE)
        self.kept = [[number] for number in range(200_000)] if shape() == "garbage" else []

    def forward(self, x: Tensor) -> Tensor:
        """Scores, after a while."""
        self.steps += 1
        stall = planted("stall") if self.steps % PERIOD == 0 else 0.0
        time.sleep(planted("forward") + stall + SLEEPS.get(shape(), WORK_S))
        if shape() == "computing":
            multiply(self.square)
        burn(planted("compute"))
        if self.steps % PERIOD == 0:
            collect(planted("garbage"))
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
