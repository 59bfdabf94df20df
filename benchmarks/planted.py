"""A model whose steps take longer by a known amount, as $WORLDSIZE_PLANTED asks: what `compare` must find.

One factory for all, as a study of another model would be other work: `` is the model itself, `slow` waits a tenth of
its own step in each forward, `wait` takes 20 ms more to give each batch.
"""

import os
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn

from worldsize.data.batched import BatchedImages

SLOWER = 0.1
WAIT_S = 0.02
REMEMBERED = 31
"""Steps whose median tells how long one takes; the pauses between the turns of a cell are among the longest."""


def model() -> nn.Module:
    """Two convolutions: steps of some tens of milliseconds, of which half are computing on one core."""
    layers = (nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
    planted = os.environ.get("WORLDSIZE_PLANTED", "")
    if planted == "wait":
        _wait_for_batches()
    return Slower(net) if planted == "slow" else net


class Slower(nn.Module):
    """The net, after a sleep of a tenth of the step that it would have been without."""

    def __init__(self, net: nn.Module, slower: float = SLOWER) -> None:
        super().__init__()
        self.net, self.slower = net, slower
        self.steps_s: deque[float] = deque(maxlen=REMEMBERED)
        self.began: float | None = None
        self.slept_s = 0.0

    def forward(self, images: Tensor) -> Tensor:
        now = time.perf_counter()
        if self.began is not None:
            self.steps_s.append(now - self.began - self.slept_s)
        self.began, self.slept_s = now, 0.0
        if self.steps_s:
            time.sleep(self.slower * float(np.median(self.steps_s)))
            self.slept_s = time.perf_counter() - now
        scores: Tensor = self.net(images)
        return scores


def _wait_for_batches() -> None:
    whole = BatchedImages.epoch

    def epoch(self: BatchedImages, *args: Any, **kwargs: Any) -> Iterator[Any]:
        for batch in whole(self, *args, **kwargs):
            time.sleep(WAIT_S)
            yield batch

    BatchedImages.epoch = epoch  # type: ignore[method-assign]
