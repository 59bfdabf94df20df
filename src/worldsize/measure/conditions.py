"""What else goes on on this machine while something is timed: other processes, other virtual machines, the clock."""

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

from worldsize.measure.cpu_times import STAT, cpu_times, seconds_of
from worldsize.measure.machine import allowed_cores

COUNTER = Path("/proc/vmstat")


@dataclass(frozen=True)
class Conditions:
    """Means over the time between a `begin` and its `end`."""

    others_cores: float
    """Cores, of those that we may use, that processes used which are neither this one nor its descendants.

    Counters tick every 10 ms: over short blocks it is vague, and may come out below 0."""
    stolen_cores: float
    """Of the same cores, how many the hypervisor gave to other virtual machines although work was there."""
    frequency_hz: float | None
    """Mean clock frequency of the machine's cores at the end; None where the machine does not tell."""


@dataclass(frozen=True)
class _Reading:
    at_s: float
    machine_s: float
    stolen_s: float
    own_s: dict[int, float]
    """CPU seconds so far of each process of ours."""


class Watch:
    """Reads the counters of the machine at both ends of a block: some milliseconds each, outside what is timed.

    `beside` are processes of the same study that this one has not started: other ranks that torchrun has. `stat` is
    where the kernel says what its CPUs have done.
    """

    def __init__(self, beside: Iterable[int] = (), stat: Path = STAT) -> None:
        self._beside, self._stat = tuple(beside), stat

    def begin(self) -> None:
        """A block begins."""
        self._before = _read(self._beside, self._stat)

    def end(self) -> Conditions:
        """The block is over; processes of ours that ended within it count for what they had used at its start."""
        before, after = self._before, _read(self._beside, self._stat)
        elapsed_s = max(after.at_s - before.at_s, 1e-9)
        own_s = sum(max(0.0, used - before.own_s.get(pid, 0.0)) for pid, used in after.own_s.items())
        return Conditions(
            others_cores=(after.machine_s - before.machine_s - own_s) / elapsed_s,
            stolen_cores=max(0.0, after.stolen_s - before.stolen_s) / elapsed_s,
            frequency_hz=_frequency_hz(),
        )


def _read(beside: Iterable[int], stat: Path) -> _Reading:
    allowed, times = allowed_cores(), cpu_times(stat)
    own = {}
    for pid in (os.getpid(), *beside):
        try:
            first = psutil.Process(pid)
            ours = (first, *first.children(recursive=True))
        except psutil.Error:
            continue  # it has ended
        for process in ours:
            try:
                used = process.cpu_times()
            except psutil.Error:
                continue  # it has just ended
            own[process.pid] = used.user + used.system
    # Interrupts are left out: most of them are our own messages.
    busy_s = seconds_of(times, allowed, "user", "nice", "system")
    return _Reading(time.monotonic(), busy_s, seconds_of(times, allowed, "steal"), own)


def _frequency_hz() -> float | None:
    try:
        found = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return float(found.current) * 1e6 if found is not None and found.current else None


def memory_kills(counter: Path = COUNTER) -> int | None:
    """The counter `oom_kill` of the kernel, memory limits of control groups included; None where it is not told."""
    try:
        lines = counter.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("oom_kill ")]
    return int(found[0]) if found else None
