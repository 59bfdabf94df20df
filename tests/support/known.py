"""Cases whose truth is known: a rank that is late, a clock that is wrong, a model of a known size."""

import time
from pathlib import Path
from typing import Any

from worldsize.measure.clocks import HostClock
from worldsize.ranks.turns import Turns
from worldsize.strategies.all_reduce import AllReduce
from worldsize.training.rank import enter

LATE_S = 0.05
AHEAD_NS = 2_000_000_000
TOO_FAST = 2000
"""A second per so many."""

WIDE_MODEL = """
from torch import nn

def net(classes):
    # A megabyte of gradients, most of it in two messages; next to nothing to compute.
    return nn.Sequential(
        nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(768, 256), nn.ReLU(),
        nn.Linear(256, 256), nn.ReLU(),
        nn.Linear(256, classes),
    )
"""


class Late(AllReduce):
    """All-reduce whose rank 1 sleeps before its first message of each step."""

    def synchronise(self) -> None:
        if self.channel.rank == 1 and self.synchronising:
            time.sleep(LATE_S)
        super().synchronise()


LATE = f"{Path(__file__)}:Late"
"""How a study is told of it."""


def enter_with_a_wrong_clock(payload: dict[str, Any], turns: Turns) -> None:
    """A worker as a study starts it, but the clock of rank 1 is ahead, as that of another host may be."""
    import os

    if os.environ["RANK"] == "1":
        HostClock.mark = HostClock.now = staticmethod(_ahead)
    enter(payload, turns)


def enter_with_a_drifting_clock(payload: dict[str, Any], turns: Turns) -> None:
    """The same, but the clock of rank 1 also runs too fast, ten times as much as a bad quartz does."""
    import os

    if os.environ["RANK"] == "1":
        HostClock.mark = HostClock.now = staticmethod(_drifting)
    enter(payload, turns)


def true_offset_ns(reading_ns: int) -> int:
    """What to add to a reading of the clock that drifts to get the right one."""
    return (reading_ns - AHEAD_NS) * TOO_FAST // (TOO_FAST + 1) - reading_ns


def _drifting() -> int:
    now = time.perf_counter_ns()
    return now + now // TOO_FAST + AHEAD_NS


def _ahead() -> int:
    return time.perf_counter_ns() + AHEAD_NS
