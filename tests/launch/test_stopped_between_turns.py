"""Workers are stopped between their turns, with all that they have started, and nobody stays stopped."""

import contextlib
import fcntl
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from jobs import alive, start, wait_until
from worldsize.launch.local import LocalJob

HELD_S = 0.5


@contextlib.contextmanager
def waiting(folder: Path) -> Iterator[tuple[LocalJob, list[psutil.Process]]]:
    """A job of two workers between two turns, and its processes: the workers and what each has started."""
    lock = str(folder / "lock")
    with contextlib.closing(start("launch_entries:with_helper", 2, folder, lock=lock, held_s=HELD_S)) as job:
        helpers = [psutil.Process(reply["said"]) for reply in job.receive()]
        yield job, [*(helper.parent() for helper in helpers), *helpers]


def stopped(processes: list[psutil.Process]) -> bool:
    return all(process.status() == psutil.STATUS_STOPPED for process in processes)


def test_they_go_on_for_a_turn(tmp_path: Path) -> None:
    with waiting(tmp_path) as (job, processes):
        assert wait_until(lambda: stopped(processes))
        job.send({"op": "steps", "count": 3})
        assert wait_until(lambda: not any(stopped([each]) for each in processes))
        assert [reply["said"] for reply in job.receive()] == [3, 3]
        assert wait_until(lambda: stopped(processes))
        job.send({"op": "finish"})
        job.receive()
        assert wait_until(lambda: not alive(processes)), "those that leave are not stopped"


def test_one_that_holds_a_file_lock_releases_it_first(tmp_path: Path) -> None:
    """The other worker waits for it in its turn; when both have replied, the cell that is next may have it."""
    with waiting(tmp_path) as (job, processes):
        job.send({"op": "steps"})
        job.receive()
        assert wait_until(lambda: stopped(processes))
        with (tmp_path / "lock").open("r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("whom", ["agent", "worker", "nobody"])
def test_nothing_stays_behind_that_is_stopped(tmp_path: Path, whom: str) -> None:
    """The kernel wakes what the agent cannot any more; a worker that is killed takes along what it has started."""
    with waiting(tmp_path) as (job, processes):
        assert wait_until(lambda: stopped(processes))
        if whom == "agent":
            psutil.Process(job.pid).send_signal(signal.SIGKILL)
        elif whom == "worker":
            processes[0].send_signal(signal.SIGKILL)
        else:
            job.close()
        assert wait_until(lambda: not alive(processes))
