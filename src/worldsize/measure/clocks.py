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
        """Let the device run dry, then record an event beside a reading of the host's clock."""
        torch.cuda.synchronize(self.device)
        self.base = torch.cuda.Event(enable_timing=True)
        self.base.record(torch.cuda.current_stream(self.device))
        self.base.synchronize()
        self.base_ns = time.perf_counter_ns()


def clock_for(device: torch.device) -> Clock:
    """The clock that tells the time of work on this device."""
    return DeviceClock(device) if device.type == "cuda" else HostClock()
