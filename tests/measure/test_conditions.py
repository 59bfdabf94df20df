"""What else goes on on the machine: our own work is not among it, that of others is."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from worldsize.measure.conditions import Watch

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
