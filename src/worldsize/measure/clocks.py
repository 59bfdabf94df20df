"""Clocks: a mark is set now and read later.

On a CPU a mark is a point on the process's monotonic clock. On a GPU it is a device event on the current stream,
because the host runs ahead of the device (method.md §2); events are read once the device has passed them.
"""

import time
from typing import Any, NamedTuple, Protocol

import torch

from worldsize.measure.accelerator import Accelerator, Event, accelerator_for

EVERY_NS = 10**9
"""How far a device's mark lies at most from the event that it is told from, where marks are set that often."""
Mark = Any
"""What a clock sets: nanoseconds of the host, or a device event. Only its own clock can read it."""


class Clock(Protocol):
    """Sets marks now, reads them later."""

    marks_are_dear: bool
    """Whether a mark costs microseconds, so that one for each parameter would be seen in the step."""

    def mark(self) -> Mark:
        """Set a mark at this moment of the work (of the current stream on a GPU)."""

    def passed(self, mark: Mark) -> bool:
        """Whether the mark can be read without waiting."""

    def read(self, mark: Mark) -> int:
        """Nanoseconds of the mark on the rank's monotonic clock; waits until the mark has passed."""

    def now(self) -> int:
        """Nanoseconds now on the rank's monotonic clock, on which all marks are read."""

    def rebase(self) -> None:
        """Tie device time to host time anew (at the start of a turn, outside the timed steps)."""

    def astray(self) -> tuple[int, int]:
        """What to add to marks that are read now to get the host's clock, and how wrong that can be (ns).

        Waits until the device has nothing left to do: a call for the ends of a turn.
        """


class HostClock:
    """The process's monotonic clock (CLOCK_MONOTONIC on Linux: the same for all processes of one machine)."""

    marks_are_dear = False
    mark = now = staticmethod(time.perf_counter_ns)
    """Nanoseconds now; without a Python call frame, as a step sets a dozen marks."""

    def passed(self, mark: int) -> bool:
        """Always: a point of the host's clock is known at once."""
        return True

    def read(self, mark: int) -> int:
        """The mark itself."""
        return mark

    def rebase(self) -> None:
        """Nothing to tie."""

    def astray(self) -> tuple[int, int]:
        """Nothing: marks are of the host's clock."""
        return 0, 0


class Base:
    """An event from which later ones are told; its own time is that of the base before it and what lies between."""

    def __init__(self, event: Event, ns: int | None = None, before: "Base | None" = None) -> None:
        self.event = event
        self._ns, self._before = ns, before

    def ns(self) -> int:
        """Nanoseconds of its moment on the rank's monotonic clock; waits until the device has reached it."""
        unknown = []
        base = self
        while base._ns is None:
            assert base._before is not None, "the first base is tied to the host"
            unknown.append(base)
            base = base._before
        for later in reversed(unknown):
            assert base._ns is not None
            later._ns, later._before = base._ns + _between_ns(base.event, later.event), None
            base = later
        assert base._ns is not None
        return base._ns


class DeviceMark(NamedTuple):
    """An event, and the base from which it is told."""

    event: Event
    base: Base


class DeviceClock:
    """Events on a device's streams, in nanoseconds of the host's monotonic clock.

    Events know only differences, in single precision and milliseconds: 24 bits are 0.1 µs up to a second, and 60 µs
    after ten minutes. So a mark is told from one a second before it at most, and that one from its own: each `EVERY_NS`
    a mark becomes the base of those after it. What the rounding of many bases adds up to is in `astray`.
    """

    marks_are_dear = True

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self._base: Base
        self._begun_ns: int
        self.rebase()

    def mark(self) -> DeviceMark:
        """Record an event on the current stream."""
        mark = DeviceMark(self.accelerator.event(), self._base)
        now_ns = time.perf_counter_ns()
        if now_ns - self._begun_ns > EVERY_NS:
            self._base, self._begun_ns = Base(mark.event, before=mark.base), now_ns
        return mark

    def passed(self, mark: DeviceMark) -> bool:
        """Whether the device has reached the event."""
        return bool(mark.event.query())

    def read(self, mark: DeviceMark) -> int:
        """Wait for the event, then its time."""
        return mark.base.ns() + _between_ns(mark.base.event, mark.event)

    def now(self) -> int:
        """Nanoseconds of the host's clock."""
        return time.perf_counter_ns()

    def rebase(self) -> None:
        """Let the device run dry, then record an event between two readings of the host's clock."""
        event, self._begun_ns, _ = self._tie()
        self._base = Base(event, self._begun_ns)

    def astray(self) -> tuple[int, int]:
        """How far the device's clock has drifted from the host's since `rebase`; half of what the tie took is error."""
        event, host_ns, error_ns = self._tie()
        return host_ns - self.read(DeviceMark(event, self._base)), error_ns

    def _tie(self) -> tuple[Event, int, int]:
        """An event, the host's time of it, and how wrong that can be."""
        self.accelerator.synchronize()
        before = time.perf_counter_ns()
        event = self.accelerator.event()
        event.synchronize()
        after = time.perf_counter_ns()
        return event, (before + after) // 2, (after - before) // 2 + 1


def _between_ns(begin: Event, end: Event) -> int:
    """Nanoseconds from one event to another, once the device has reached both."""
    begin.synchronize()
    end.synchronize()
    return round(begin.elapsed_time(end) * 1e6)


def clock_for(device: torch.device) -> Clock:
    """The clock that tells the time of work on this device."""
    accelerator = accelerator_for(device)
    return HostClock() if accelerator is None else DeviceClock(accelerator)
