"""Who hangs and who only waits, from the stacks that the ranks leave."""

from pathlib import Path

import pytest

from worldsize.launch.hang import Found, HangWatch, hang_of, main_thread
from worldsize.launch.job import Job

HELPER = """Thread 0x00007f33 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 415 in select
  File "/home/me/mine.py", line 3 in helper

"""


def found(rank: int, *frames: str, begun: int = 7, status: str = "sleeping") -> Found:
    inner = "".join(f'  File "{frame}", line 12 in there\n' for frame in frames)
    stack = f"{HELPER}Current thread 0x00007f34 (most recent call first):\n{inner}" if frames else ""
    return Found(rank=rank, begun=begun, stack=stack, status=status)


ALL_REDUCE = "/venv/torch/distributed/distributed_c10d.py"
BACKWARD = "/venv/torch/autograd/graph.py"
OURS = "/src/worldsize/training/trainer.py"


def test_the_main_thread_is_the_last_one() -> None:
    assert main_thread(found(0, "/home/me/mine.py", OURS).stack) == [
        ("/home/me/mine.py", "12", "there"),
        (OURS, "12", "there"),
    ]
    assert main_thread("") == []


def test_the_rank_that_hangs_is_told_from_those_that_wait() -> None:
    error = hang_of([found(0, ALL_REDUCE, OURS), found(1, "/home/me/mine.py", OURS), found(2, BACKWARD, OURS)], 20, [])
    assert (error.kind, error.rank, error.exit_status) == ("Hang", 1, 1)
    assert error.message.splitlines() == [
        "nothing has begun for 20 s: rank 1 hangs in /home/me/mine.py, line 12, in there; ranks 0, 2 wait for it",
        "If it is only slow, raise --hang-timeout.",
    ]
    assert error.traceback is not None
    assert "rank 2:\n" in error.traceback


def test_of_several_the_one_that_came_least_far_is_first() -> None:
    error = hang_of([found(0, OURS, begun=9), found(1, OURS, begun=8)], 20, [])
    assert error.rank == 1


def test_a_stopped_rank_and_one_that_does_not_answer_are_told() -> None:
    error = hang_of([found(0, status="stopped"), found(1, ALL_REDUCE)], 20, [])
    assert error.rank == 0
    assert "rank 0 is stopped by a signal (SIGSTOP); rank 1 waits for it" in error.message
    assert "rank 0 does not answer" in hang_of([found(0), found(1, ALL_REDUCE)], 20, []).message


def test_where_all_wait_nobody_is_blamed_but_a_link_that_is_down() -> None:
    waiting = [found(rank, ALL_REDUCE, OURS) for rank in range(2)]
    error = hang_of(waiting, 20, [])
    assert error.rank is None
    assert "no rank hangs by itself" in error.message
    assert hang_of(waiting, 20, [1]).rank == 1
    assert "the link of rank 1 is down" in hang_of(waiting, 20, [1]).message


@pytest.mark.parametrize(("begun", "hangs"), [(1, False), (2, True)])
def test_a_rank_may_take_its_time_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: int, hangs: bool
) -> None:
    """And a parent that stood still for an hour has not seen an hour of silence."""
    clock = [100.0]
    monkeypatch.setattr("worldsize.launch.hang.time.monotonic", lambda: clock[0])
    job = Job(entry="m:f", payload={}, processes=1, folder=tmp_path, hang_timeout_s=5)
    watch = HangWatch(job)
    monkeypatch.setattr(watch, "_asked", lambda agent: [found(0, OURS)])
    job.pulse_file(0).write_text(f"1234 {begun}\n")
    watch.begin()
    assert watch.look(1) is None, "the first look sees something new"
    clock[0] += 3600
    assert watch.look(1) is None
    seen = []
    for _ in range(6):
        clock[0] += 1
        seen.append(watch.look(1))
    assert any(seen) == hangs


def test_without_a_time_nothing_hangs(tmp_path: Path) -> None:
    watch = HangWatch(Job(entry="m:f", payload={}, processes=1, folder=tmp_path))
    watch.begin()
    assert watch.look(1) is None
