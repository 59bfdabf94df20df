"""What the logical CPUs of the machine have done so far, each by its number."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

STAT = Path("/proc/stat")
KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""What Linux counts, in order (proc(5)); what guests use is in the first two already."""
AT_REST = ("idle", "iowait")

CpuTimes = Mapping[int, Mapping[str, float]]
"""Seconds of each kind since the machine was started, by CPU number."""


def cpu_times(stat: Path = STAT) -> CpuTimes:
    """The counters of every CPU that is online.

    Not by their place in the list: where second threads are switched off the CPUs are 0, 2, 4 …
    """
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:  # not Linux: there a place is a number
        return {number: of_one._asdict() for number, of_one in enumerate(psutil.cpu_times(percpu=True))}
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    rows = [line.removeprefix("cpu").split() for line in lines if line.startswith("cpu") and line[3:4].isdigit()]
    return {
        int(number): {kind: int(ticks) * tick_s for kind, ticks in zip(KINDS, counted, strict=False)}
        for number, *counted in rows
    }


def seconds_of(times: CpuTimes, cores: Iterable[int], *kinds: str) -> float:
    """The sum of these kinds over those of the cores that are online."""
    return sum(times[core].get(kind, 0.0) for core in cores if core in times for kind in kinds)


def cores_busy(before: CpuTimes, after: CpuTimes, cores: Iterable[int]) -> float:
    """How many of these cores were at work between two readings, for any process."""
    busy = 0.0
    for core in cores:
        if core in before and core in after:
            passed = {kind: max(0.0, after[core][kind] - before[core].get(kind, 0.0)) for kind in after[core]}
            all_s = sum(passed.values())
            busy += 1 - sum(passed.get(kind, 0.0) for kind in AT_REST) / all_s if all_s else 0.0
    return busy
