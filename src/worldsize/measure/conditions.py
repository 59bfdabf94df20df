"""What else goes on on this machine while something is timed: other processes, other virtual machines, the clock."""

import time
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Conditions:
    """Means over the time between a `begin` and its `end`."""

    others_cores: float
    """Cores that processes used which are neither this one nor its descendants."""
    stolen_cores: float
    """Cores that the hypervisor gave to other virtual machines although work was there."""
    frequency_hz: float | None
    """Mean clock frequency of the cores at the end; None where the machine does not tell."""


@dataclass(frozen=True)
class _Reading:
    at_s: float
    machine_s: float
    stolen_s: float
    own_s: dict[int, float]
    """CPU seconds so far of each process of ours."""


class Watch:
    """Reads the counters of the machine at both ends of a block: some milliseconds each, outside what is timed."""

    def begin(self) -> None:
        """A block begins."""
        self._before = _read()

    def end(self) -> Conditions:
        """The block is over; processes of ours that ended within it count for what they had used at its begin."""
        before, after = self._before, _read()
        elapsed_s = max(after.at_s - before.at_s, 1e-9)
        own_s = sum(max(0.0, used - before.own_s.get(pid, 0.0)) for pid, used in after.own_s.items())
        return Conditions(
            others_cores=max(0.0, after.machine_s - before.machine_s - own_s) / elapsed_s,
            stolen_cores=max(0.0, after.stolen_s - before.stolen_s) / elapsed_s,
            frequency_hz=_frequency_hz(),
        )


def _read() -> _Reading:
    times = psutil.cpu_times()
    own = {}
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue  # it has just ended
        own[process.pid] = used.user + used.system
    busy_s = sum(getattr(times, kind, 0.0) for kind in ("user", "nice", "system", "irq", "softirq"))
    return _Reading(time.monotonic(), busy_s, getattr(times, "steal", 0.0), own)


def _frequency_hz() -> float | None:
    try:
        found = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return float(found.current) * 1e6 if found is not None and found.current else None
