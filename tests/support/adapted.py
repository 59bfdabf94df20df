"""What the tests of the adapters train: 22 samples in batches of 2, so that 4 of them leave 3 for the last step."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars  # noqa: F401 # sets a variable of the environment when it is loaded: not in the middle of a test
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from worldsize import load_run

BATCH, BATCHES, EPOCHS = 2, 11, 2
SAMPLES = {1: [2] * 22, 4: [8, 8, 6] * 2}
"""Accumulated batches → the samples of each step of the optimizer."""
EPOCH = {1: [0] * 11 + [1] * 11, 4: [0, 0, 0, 1, 1, 1]}
PHASES = {"data_wait", "forward", "backward", "optimizer"}


class Rows(Dataset[dict[str, Tensor]]):
    """Samples as the frameworks' examples have them: a dict each."""

    def __init__(self) -> None:
        made = torch.Generator().manual_seed(1)
        self.x = torch.randn(BATCH * BATCHES, 4, generator=made)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        return {"x": self.x[index], "labels": (self.x[index].sum() > 0).long()}


class Net(nn.Module):
    """Returns its loss, as models of transformers do, and notes when it was evaluated, on the clock of the steps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.evaluated: list[int] = []
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if not self.training:
            self.evaluated.append(time.perf_counter_ns())
        scores = self.layers(x)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def loader() -> DataLoader[dict[str, Tensor]]:
    """Shuffled, so that a random number more or less would be seen in the weights."""
    return DataLoader(Rows(), batch_size=BATCH, shuffle=True)


def lines(out: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The steps that a rank has written."""
    (file,) = out.glob(f"cells/*/rank{rank}.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


def check_run(out: Path, accumulated: int, evaluated: list[int]) -> None:
    """Each step has all its batches and phases, and no evaluation lies in one; `evaluated` are their moments."""
    steps = lines(out)
    assert [step["samples"] for step in steps] == SAMPLES[accumulated]
    assert [step["epoch"] for step in steps] == EPOCH[accumulated]
    assert all(set(step["phases"]) >= PHASES for step in steps)
    assert [step["phases"].count("forward") for step in steps] == [n // BATCH for n in SAMPLES[accumulated]]
    assert evaluated
    assert not any(interrupted(steps, evaluated))
    (cell,) = load_run(out).cells.values()
    assert (cell.record.state, cell.record.batch_size) == ("complete", BATCH * accumulated)


def interrupted(steps: list[dict[str, Any]], moments: list[int]) -> list[bool]:
    """Of each step, whether one of these moments lies in it."""
    spans = [(step["start_ns"], step["start_ns"] + step["step_s"] * 1e9) for step in steps]
    return [any(begin < moment < end for moment in moments) for begin, end in spans]


def same(a: nn.Module, b: nn.Module) -> bool:
    """Bit for bit."""
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@contextmanager
def nothing_left(model: nn.Module, *owners: type) -> Iterator[None]:
    """What is done here leaves no patch, and no hook on the model and its parameters."""
    before = patched(*owners)
    yield
    assert patched(*owners) == before
    assert not any(module._forward_pre_hooks for module in model.modules())
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def patched(*owners: type) -> list[Callable[..., Any]]:
    """All that a meter replaces."""
    functions = [dist.all_reduce, dist.broadcast, dist.all_gather, dist.reduce_scatter_tensor]
    return [Tensor.backward, *functions, *(owner.__iter__ for owner in owners if hasattr(owner, "__iter__"))]


def hooks_of(optimizer: Optimizer) -> int:
    """Hooks on the steps of an optimizer."""
    return len(optimizer._optimizer_step_pre_hooks) + len(optimizer._optimizer_step_post_hooks)
