"""Clocks: a mark is set now and read later.

On a CPU a mark is a point on the process's monotonic clock. On a GPU it is a device event on the current stream,
because the host runs ahead of the device (method.md §2); events are read once the device has passed them.
"""

import time
from typing import Any, Protocol

import torch

Mark = Any
"""What a clock sets: nanoseconds of the host, or a device event. Only its own clock can read it."""


class Clock(Protocol):
    """Sets marks now, reads them later."""

    def mark(self) -> Mark:
        """Set a mark at this moment of the work (of the current stream on a GPU)."""

    def passed(self, mark: Mark) -> bool:
        """Whether the mark can be read without waiting."""

    def read(self, mark: Mark) -> int:
        """Nanoseconds of the mark on the rank's monotonic clock; waits until the mark has passed."""

    def now(self) -> int:
        """Nanoseconds now on the rank's monotonic clock, on which all marks are read."""

    def rebase(self) -> None:
        """Tie device time to host time anew (at the begin of a turn, outside the timed steps)."""

    def astray(self) -> tuple[int, int]:
        """What to add to marks that are read now to get the host's clock, and how wrong that can be (ns).

        Waits until the device has nothing left to do: a call for the ends of a turn.
        """


class HostClock:
    """The process's monotonic clock (CLOCK_MONOTONIC on Linux: the same for all processes of one machine)."""

    def mark(self) -> int:
        """Nanoseconds now."""
        return time.perf_counter_ns()

    def passed(self, mark: int) -> bool:
        """Always: a point of the host's clock is known at once."""
        return True

    def read(self, mark: int) -> int:
        """The mark itself."""
        return mark

    def now(self) -> int:
        """Nanoseconds now."""
        return time.perf_counter_ns()

    def rebase(self) -> None:
        """Nothing to tie."""

    def astray(self) -> tuple[int, int]:
        """Nothing: marks are of the host's clock."""
        return 0, 0


class DeviceClock:
    """Events on a GPU's streams, in nanoseconds of the host's monotonic clock.

    Events know only differences, in single precision and milliseconds: `rebase` keeps those differences small
    (24 bits are 1 µs up to about 16 s, so a turn of minutes still has better than 10 µs).
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.rebase()

    def mark(self) -> torch.cuda.Event:
        """Record an event on the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def passed(self, mark: torch.cuda.Event) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.query())

    def read(self, mark: torch.cuda.Event) -> int:
        """Wait for the event, then its time."""
        mark.synchronize()
        since_base_ms: float = self.base.elapsed_time(mark)
        return self.base_ns + round(since_base_ms * 1e6)

    def now(self) -> int:
        """Nanoseconds of the host's clock."""
        return time.perf_counter_ns()

    def rebase(self) -> None:
        """Let the device run dry, then record an event between two readings of the host's clock."""
        self.base, self.base_ns, _ = self._tie()

    def astray(self) -> tuple[int, int]:
        """How far the device's clock has drifted from the host's since `rebase`; half of what the tie took is error."""
        event, host_ns, error_ns = self._tie()
        return host_ns - self.read(event), error_ns

    def _tie(self) -> tuple[torch.cuda.Event, int, int]:
        """An event, the host's time of it, and how wrong that can be."""
        torch.cuda.synchronize(self.device)
        event = torch.cuda.Event(enable_timing=True)
        before = time.perf_counter_ns()
        event.record(torch.cuda.current_stream(self.device))
        event.synchronize()
        after = time.perf_counter_ns()
        return event, (before + after) // 2, (after - before) // 2 + 1


def clock_for(device: torch.device) -> Clock:
    """The clock that tells the time of work on this device."""
    return DeviceClock(device) if device.type == "cuda" else HostClock()
