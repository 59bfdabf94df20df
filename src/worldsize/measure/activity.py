"""What a training thread does with its time: it computes, queues for a core, collects garbage, or none of these.

What is left is sleep, or waiting for a disk, a lock, the network or other processes. Linux tells it by thread.
"""

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from worldsize.results.step_records import RankActivity

NS = 1e9


class _Reading(NamedTuple):
    cpu_ns: int
    ran_and_queued_ns: tuple[int, int] | None
    collected_ns: int
    faults: int


class Activity:
    """Reads the counters of one thread at both ends of a turn, outside of its steps.

    That takes 64 µs (median of 3,000, AMD EPYC).
    Garbage collection counts on any thread: Python lets no other one compute meanwhile.
    """

    def __init__(self, thread: threading.Thread | None = None) -> None:
        """`thread`: the one that trains; without it the one that calls `begin`."""
        self._thread = thread
        self._collected_ns = self._since_ns = self._until_step_ns = self._most_ns = 0
        self._before: _Reading | None = None
        gc.callbacks.append(self._collecting)

    def close(self) -> None:
        """Listen to the collector no longer."""
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)

    def begin(self) -> None:
        """Some steps begin."""
        self._until_step_ns, self._most_ns = self._collected_ns, 0
        self._before = self._read()

    def stepped(self) -> None:
        """One of them is over."""
        self._most_ns = max(self._most_ns, self._collected_ns - self._until_step_ns)
        self._until_step_ns = self._collected_ns

    def end(self, steps: int) -> RankActivity | None:
        """What the thread did in these steps, `begin` to now; None without a step."""
        before, after = self._before, self._read()
        if before is None or not steps:
            return None
        return RankActivity(
            steps=steps,
            cpu_s=_seconds(after.cpu_ns - before.cpu_ns),
            queued_s=_queued_s(before, after),
            collected_s=_seconds(after.collected_ns - before.collected_ns),
            most_collected_s=_seconds(self._most_ns),
            major_faults=after.faults - before.faults,
        )

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        now_ns = time.perf_counter_ns()
        if phase == "start":
            self._since_ns = now_ns
        elif self._since_ns:
            self._collected_ns += now_ns - self._since_ns

    def _read(self) -> _Reading:
        thread = self._thread or threading.current_thread()
        assert thread.ident is not None, "a thread that trains has been started"
        # In a process that was forked `native_id` is still that of the thread that forked it.
        number = os.getpid() if thread is threading.main_thread() else thread.native_id
        place = Path(f"/proc/self/task/{number}")
        scheduled = _numbers(place / "schedstat")
        # After the name of the program, which may hold anything, and the state, majflt is the ninth number (proc(5)).
        stat = _numbers(place / "stat", after=")")
        return _Reading(
            time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident)),
            (scheduled[0], scheduled[1]) if len(scheduled) > 1 else None,
            self._collected_ns,
            stat[8] if len(stat) > 8 else 0,
        )


def queued_by_all_s() -> float | None:
    """How long the threads of this process have waited for a core so far (s); None where the system does not tell.

    A thread that has ended counts no longer.
    """
    scheduled = [_numbers(each / "schedstat") for each in Path("/proc/self/task").glob("*")]
    known = [each for each in scheduled if len(each) > 1]
    return sum(each[1] for each in known) / NS if any(each[0] for each in known) else None


def _queued_s(before: _Reading, after: _Reading) -> float | None:
    if before.ran_and_queued_ns is None or after.ran_and_queued_ns is None:
        return None
    # A kernel that does not count has zeros, and so has a thread that has just begun: only the end tells them apart.
    if not after.ran_and_queued_ns[0]:
        return None
    return _seconds(after.ran_and_queued_ns[1] - before.ran_and_queued_ns[1])


def _seconds(ns: int) -> float:
    return round(ns / NS, 6)


def _numbers(file: Path, after: str = "") -> list[int]:
    """The whole numbers in a file of the kernel, in order; none where it cannot be read."""
    try:
        text = file.read_text()
    except OSError:
        return []
    words = (text.rpartition(after)[2] if after else text).split()
    return [int(word) for word in words if word.lstrip("-").isdigit()]
