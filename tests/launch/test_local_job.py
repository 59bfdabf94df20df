"""Jobs of real processes: turns and replies, every way to fail, and that nothing of a job outlives it."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ipaddress
import psutil
import pytest
from jobs import alive, environment, family, start, wait_until

from worldsize.launch.local import JobFailed, LocalJob
from worldsize.results.records import ErrorRecord


@contextlib.contextmanager
def job(entry: str, processes: int, folder: Path, **options: Any) -> Iterator[LocalJob]:
    """A job of launch_entries whose workers are ready is closed at the end, whatever happens."""
    with contextlib.closing(start(f"launch_entries:{entry}", processes, folder, **options)) as started:
        yield started


def said(replies: list[Any]) -> list[Any]:
    return [reply["said"] for reply in replies]


def test_replies_come_in_the_order_of_ranks_and_turns_in_the_order_of_sending(tmp_path: Path) -> None:
    with job("answer", 3, tmp_path, word="here") as three:
        assert said(three.receive()) == [["here", 0], ["here", 1], ["here", 2]]
        # The next turn need not wait for the reply to the one before.
        for count in range(1, 6):
            three.send({"op": "steps", "count": count})
        three.send({"op": "finish"})
        for count in range(1, 6):
            assert said(three.receive()) == [["here", rank, "steps", count] for rank in range(3)]
        assert said(three.receive()) == [["here", rank, "finish", 0] for rank in range(3)]


def test_a_waiting_parent_is_called_now_and_then(tmp_path: Path) -> None:
    calls = []
    with job("answer", 1, tmp_path, word="") as one:
        one.receive(lambda: calls.append(1), every_s=0.05)
    assert calls


def test_workers_form_a_group_on_loopback_alone_in_the_environment_of_the_job(tmp_path: Path) -> None:
    variables = {"GREETING": "good day", "PYTHONHASHSEED": "0"}  # the second is read before Python starts
    with job("about_me", 2, tmp_path, variables=variables) as two:
        about = said(two.receive())
        pids = {two.pid, *(me["pid"] for me in about)}
        assert len(pids) == 3
        assert [me["total"] for me in about] == [2.0, 2.0]
        assert [(me["greeting"], me["hash_randomization"]) for me in about] == [("good day", 0)] * 2
        listening = [c for c in psutil.net_connections("inet") if c.pid in pids and c.status == psutil.CONN_LISTEN]
        assert {c.pid for c in listening} == pids  # the store of the agent, and gloo in each worker
        assert [c.laddr for c in listening if not ipaddress.ip_address(c.laddr.ip).is_loopback] == []


def failure(folder: Path, processes: int = 2, **payload: Any) -> ErrorRecord:
    """What the parent is told when rank 1 fails in its first turn."""
    with job("fail", processes, folder, rank=1, **payload) as failing:
        failing.receive()
        workers = family(failing.pid)
        failing.send({"op": "steps"})
        with pytest.raises(JobFailed) as caught:
            failing.receive()
        assert alive(workers) == []
    return caught.value.error


def test_the_rank_that_raises_is_told_and_not_its_echo(tmp_path: Path) -> None:
    error = failure(tmp_path, how="raise")
    assert (error.rank, error.kind, error.exit_status) == (1, "ValueError", 1)
    assert error.message == "ValueError: this model is told to fail"
    assert error.traceback is not None
    assert "_raise_value_error" in error.traceback


def test_a_users_mistake_keeps_its_words_and_its_exit_status(tmp_path: Path) -> None:
    error = failure(tmp_path, how="mistake")
    assert (error.rank, error.kind, error.exit_status) == (1, "DataError", 2)
    assert error.message == "a file is truncated\nFetch it again."


@pytest.mark.parametrize("others", ["collective", "sleep"])
def test_a_worker_that_was_killed_is_named(tmp_path: Path, others: str) -> None:
    """Also where the others hear nothing of it, and the agent has to end them."""
    error = failure(tmp_path, processes=3, how="sigkill", others=others)
    assert (error.kind, error.rank, error.exit_status) == ("Signal", 1, 1)
    assert "rank 1 was killed by SIGKILL" in error.message
    assert "out-of-memory" in error.message


def test_a_worker_that_leaves_without_a_word_is_named_with_its_status(tmp_path: Path) -> None:
    error = failure(tmp_path, how="exit", others="sleep")
    assert (error.kind, error.rank) == ("WorkerError", 1)
    assert "exit status 3" in error.message


def test_a_job_whose_entry_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    with job("no_such_entry", 1, tmp_path) as failing, pytest.raises(JobFailed, match="no_such_entry"):
        failing.receive()


def test_an_agent_that_is_killed_takes_its_workers_along(tmp_path: Path) -> None:
    with job("answer", 2, tmp_path, word="") as orphaned:
        orphaned.receive()
        processes = family(orphaned.pid)
        processes[0].kill()
        with pytest.raises(JobFailed, match="the agent ended with status -9"):
            orphaned.receive()
        assert wait_until(lambda: not alive(processes))


def test_closing_ends_workers_that_hang(tmp_path: Path) -> None:
    """One hangs in a collective, the other in a sleep; neither the grace of ten seconds nor a kill is needed."""
    with job("hang", 2, tmp_path) as hanging:
        hanging.receive()
        hanging.send({"op": "steps"})
        processes = family(hanging.pid)
        assert len(processes) == 3
        hanging.close(grace_s=60)
        assert alive(processes) == []


def test_closing_ends_workers_that_ignore_it(tmp_path: Path) -> None:
    with job("hang", 2, tmp_path, deaf=True) as deaf:
        deaf.receive()
        processes = family(deaf.pid)
        deaf.close(grace_s=0.5)
        assert wait_until(lambda: not alive(processes))


def test_closing_ends_a_job_that_is_still_starting(tmp_path: Path) -> None:
    with job("answer", 2, tmp_path, word="") as starting:
        assert wait_until(lambda: len(family(starting.pid)) == 3)
        processes = family(starting.pid)
        starting.close(grace_s=60)
        assert alive(processes) == []


PARENT = """
import sys, time
from pathlib import Path
from jobs import start
job = start("launch_entries:hang", 2, Path(sys.argv[1]))
if sys.argv[2] == "at work":
    job.receive()
    job.send({"op": "steps"})
print(job.pid, flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("when", ["starting", "at work"])
def test_a_parent_that_is_killed_leaves_nothing_running(tmp_path: Path, when: str) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), when],
        stdout=subprocess.PIPE,
        text=True,
        env={**environment_of_tests(), **environment()},
    )
    with parent:
        assert parent.stdout is not None
        agent = int(parent.stdout.readline())
        assert wait_until(lambda: len(family(agent)) == 3)
        processes = family(agent)
        parent.kill()
    assert wait_until(lambda: not alive(processes))


def environment_of_tests() -> dict[str, str]:
    import os

    return dict(os.environ)
