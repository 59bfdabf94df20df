"""What else goes on on the machine: our own work is not among it, that of others is."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from worldsize.measure import conditions
from worldsize.measure.conditions import Watch
from worldsize.measure.cpu_times import cores_busy, cpu_times

SPIN = "import time; end = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


@contextmanager
def somebody_else() -> Iterator[int]:
    """A process that spins and is no child of ours: its parent has ended."""
    started = subprocess.run(
        [
            sys.executable,
            "-c",
            "import subprocess, sys; from subprocess import DEVNULL as no\n"
            f"print(subprocess.Popen([sys.executable, '-c', {SPIN!r}], stdout=no, stderr=no).pid)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    process = psutil.Process(int(started.stdout))
    try:
        yield process.pid
    finally:
        process.kill()
        with suppress(psutil.TimeoutExpired):  # whoever has adopted it may be slow to notice
            process.wait(5)


def others_during(seconds: float, *beside: int) -> float:
    watch = Watch(beside)
    watch.begin()
    time.sleep(seconds)
    return watch.end().others_cores


def test_a_process_of_others_is_seen() -> None:
    before = others_during(0.5)
    with somebody_else():
        during = others_during(0.8)
    # On a machine that is full already it takes its part from the others.
    assert during > min(before + 0.3, 0.7 * len(os.sched_getaffinity(0)))


def test_ranks_that_another_process_has_started_are_not_others() -> None:
    """Under torchrun they are no children of rank 0. What such a rank uses is all that two watches differ by."""
    with somebody_else() as rank:
        of_rank = psutil.Process(rank)
        watches = Watch(), Watch([rank])
        for watch in watches:
            watch.begin()
        used_s = -sum(of_rank.cpu_times()[:2])
        time.sleep(1)
        used_s += sum(of_rank.cpu_times()[:2])
        theirs, ours = (watch.end().others_cores for watch in watches)
    assert theirs - ours == pytest.approx(used_s, rel=0.2, abs=0.05)


def test_a_rank_that_has_ended_is_nothing() -> None:
    with somebody_else() as rank:
        pass
    assert others_during(0.1, rank) is not None


def test_our_own_processes_are_not_others() -> None:
    """A child that spins must not look like a disturbance; what others do meanwhile is the same for both."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        time.sleep(0.2)
        watch = Watch()
        watch.begin()
        time.sleep(0.8)
        seen = watch.end()
    finally:
        process.kill()
        process.wait()
    assert seen.others_cores < 0.7 + max(0.0, others_during(0.5))
    assert seen.stolen_cores >= 0
    assert seen.frequency_hz is None or seen.frequency_hz > 1e8


def stat_of(place: Path, *counted: str) -> Path:
    """What Linux says of its CPUs: of each a line of user, nice, system, idle, iowait, irq, softirq, steal."""
    rows = ("cpu  9 9 9 9 9 9 9 9 0 0", *counted, "intr 8 0", "ctxt 1", "btime 1700000000", "processes 5")
    place.write_text("\n".join(rows) + "\n")
    return place


def test_cpus_are_counted_by_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Second threads are switched off: of 0, 2, 4 and 6 the second and the last are at work, for somebody else."""
    monkeypatch.setattr(conditions, "allowed_cores", lambda: (0, 2, 4, 6))
    tick = os.sysconf("SC_CLK_TCK")
    stat = stat_of(tmp_path / "stat", *(f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0" for cpu in (0, 2, 4, 6)))
    watch = Watch(stat=stat)
    watch.begin()
    counted = {
        0: "0 0 0 1000",
        2: f"{5000 * tick} 0 {1000 * tick} 0",
        4: "0 0 0 1000",
        6: f"0 {2000 * tick} 0 0",
    }
    stolen = {0: 0, 2: 1000 * tick, 4: 0, 6: 1000 * tick}
    stat_of(stat, *(f"cpu{cpu} {times} 0 0 0 {stolen[cpu]} 0 0" for cpu, times in counted.items()))
    seen = watch.end()
    assert seen.others_cores > 0
    assert seen.stolen_cores / seen.others_cores == pytest.approx(2000 / 8000, rel=0.01)


def test_cores_in_use_are_counted_by_their_numbers(tmp_path: Path) -> None:
    """Of 0, 2, 4 and 6 the second is at work for three quarters of the time, the last for all of it."""
    before = stat_of(tmp_path / "before", *(f"cpu{cpu} 50 0 50 500 40 0 0 0 0 0" for cpu in (0, 2, 4, 6)))
    after = stat_of(
        tmp_path / "after",
        "cpu0 50 0 50 600 40 0 0 0 0 0",
        "cpu2 80 5 70 520 45 10 5 5 0 0",
        "cpu4 50 0 50 550 90 0 0 0 0 0",
        "cpu6 150 0 50 500 40 0 0 0 0 0",
    )
    first, last = cpu_times(before), cpu_times(after)
    assert cores_busy(first, last, (0, 2, 4, 6)) == pytest.approx(1.75)
    assert cores_busy(first, last, (0, 4)) == 0.0
    assert cores_busy(first, last, (1, 3, 9)) == 0.0


def test_the_cpus_of_this_machine_have_counters() -> None:
    assert {*os.sched_getaffinity(0)} <= {*cpu_times()}
