"""The time in turn of a command: how long it has run, without the time for which it was stopped."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]


@dataclass
class TurnClock:
    """Turns moments of the machine's monotonic clock into a clock that stands still while a command is stopped.

    So a step that spans a stop has its time in turn, and each step begins where the one before it ends (method.md §8).
    """

    begins_ns: list[int] = field(default_factory=list)
    ends_ns: list[int] = field(default_factory=list)
    """Of each turn; the present one has no end yet."""

    def begin(self, now_ns: int) -> None:
        """The command goes on."""
        self.begins_ns.append(now_ns)

    def end(self, now_ns: int) -> None:
        """The command is stopped."""
        self.ends_ns.append(now_ns)

    @property
    def in_turn_s(self) -> float:
        """Seconds that it has run so far, in turns that are over."""
        return sum(end - begin for begin, end in zip(self.begins_ns, self.ends_ns, strict=False)) / 1e9

    def told(self, moments_ns: Nanoseconds) -> Nanoseconds:
        """Return the moments on this clock, which begins with the first turn; those in a stop are its begin.

        What a process marks between the signal and its stop lies a few µs behind the end of the turn.
        """
        begins = np.array(self.begins_ns, np.int64)
        ends = np.array(self.ends_ns[: len(begins)], np.int64)
        lengths = ends - begins[: len(ends)]
        before = np.concatenate([[0], np.cumsum(lengths)])
        turn = np.clip(np.searchsorted(begins, moments_ns, side="right") - 1, 0, len(begins) - 1)
        since = np.maximum(moments_ns - begins[turn], 0)
        most = np.concatenate([lengths, np.full(len(begins) - len(lengths), np.iinfo(np.int64).max)])
        told: Nanoseconds = begins[0] + before[turn] + np.minimum(since, most[turn])
        return told
