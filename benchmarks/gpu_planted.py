"""A training whose parts have a known length on the device, as a workload and as a script (BATCH_MS).

Its kernels only wait: forward and backward are as long as was asked for. Batches come at a rate, as from a disk,
whatever the host does between them. What is true follows: a step is the longer of the two, the rest of it data wait.
"""

import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

FORWARD_MS, BACKWARD_MS = 4.0, 8.0
BATCH_MS = "WORLDSIZE_PLANTED_BATCH_MS"
LATE_MS = "WORLDSIZE_PLANTED_LATE_MS"
"""By which forward is longer in this process."""
TRIED_CYCLES = 20_000_000


@cache
def cycles_per_ms() -> float:
    """How many of the device's cycles are a millisecond; the shortest of five, for clocks rise."""
    found = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(TRIED_CYCLES)
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end))
    return float(TRIED_CYCLES / min(found))


def _sleep(milliseconds: float) -> None:
    torch.cuda._sleep(int(milliseconds * cycles_per_ms()))


class Waits(torch.autograd.Function):
    """Hands on what it gets, and keeps the device waiting in both directions."""

    @staticmethod
    def forward(_: Any, given: Tensor) -> Tensor:
        _sleep(FORWARD_MS + float(os.environ.get(LATE_MS, "0")))
        return given.clone()

    @staticmethod
    def backward(_: Any, *gradients: Tensor) -> Tensor:
        _sleep(BACKWARD_MS)
        return gradients[0].clone()


class Net(nn.Module):
    """A layer, what waits, and another layer, whose gradients come before the wait; those of the first come after."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, given: Tensor) -> Tensor:
        waited: Tensor = Waits.apply(self.first(given))  # type: ignore[no-untyped-call]
        found: Tensor = self.second(waited)
        return found


class Rate:
    """Waits until the next batch is due; none was missed where nobody asked for it."""

    def __init__(self, batch_ms: float) -> None:
        self.batch_s, self.due = batch_ms / 1e3, 0.0

    def wait(self) -> None:
        now = time.perf_counter()
        self.due = max(self.due + self.batch_s, now)
        time.sleep(self.due - now)


class Planted:
    """The workload."""

    def model(self) -> nn.Module:
        return Net()

    def batches(self, rank: int, world_size: int, local_batch: int) -> Iterator[Tensor]:
        rate = Rate(float(os.environ.get(BATCH_MS, "0")))
        generator = torch.Generator().manual_seed(rank)
        while True:
            rate.wait()
            yield torch.randn(local_batch, 64, generator=generator)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        loss: Tensor = model(batch).square().mean()
        return loss


def main() -> None:
    """The same as a loop of somebody's own, with a loader that makes batches in the loop's process."""
    device = torch.device("cuda", 0)
    work = Planted()
    model = work.model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader = torch.utils.data.DataLoader(Rows(float(sys.argv[1])), batch_size=16, pin_memory=True)
    for batch in loader:
        loss = work.loss(model, batch.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class Rows(torch.utils.data.Dataset[Tensor]):
    """Samples for an hour; the first of each sixteen takes as long as a batch."""

    def __init__(self, batch_ms: float) -> None:
        self.rate = Rate(batch_ms)

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, number: int) -> Tensor:
        if number % 16 == 0:
            self.rate.wait()
        return torch.ones(64)


if __name__ == "__main__":
    main()
