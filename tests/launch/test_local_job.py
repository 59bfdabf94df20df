"""Jobs of real processes: turns and replies, every way to fail, and that nothing of a job outlives it."""

import contextlib
import ipaddress
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from jobs import alive, environment, family, start, wait_until
from worldsize.launch.local import JobFailed, LocalJob
from worldsize.launch.warm import Child
from worldsize.results.records import ErrorRecord


@contextlib.contextmanager
def job(entry: str, processes: int, folder: Path, **options: Any) -> Iterator[LocalJob]:
    """A job of launch_entries whose workers are ready is closed at the end, whatever happens."""
    with contextlib.closing(start(f"launch_entries:{entry}", processes, folder, **options)) as started:
        yield started


@pytest.fixture(scope="module")
def willing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalJob, list[dict[str, Any]], int]]:
    """A job of three that answers each turn, what its ranks said at the start, and how often we were called before."""
    variables = {"GREETING": "good day", "PYTHONHASHSEED": "0"}  # the second is read before Python starts
    calls: list[None] = []
    with job("answer", 3, tmp_path_factory.mktemp("job"), word="here", variables=variables) as three:
        replies = three.receive(lambda: calls.append(None), every_s=0.05)
        yield three, [reply["said"] for reply in replies], len(calls)


def test_replies_come_in_the_order_of_ranks_and_turns_in_the_order_of_sending(
    willing: tuple[LocalJob, list[dict[str, Any]], int],
) -> None:
    three, about, _ = willing
    assert [(me["word"], me["rank"]) for me in about] == [("here", 0), ("here", 1), ("here", 2)]
    for count in range(1, 6):  # the next turn need not wait for the reply to the one before
        three.send({"op": "steps", "count": count})
    three.send({"op": "evaluate"})
    for count in range(1, 6):
        assert [reply["said"] for reply in three.receive()] == [[rank, "steps", count] for rank in range(3)]
    assert [reply["said"] for reply in three.receive()] == [[rank, "evaluate", 0] for rank in range(3)]


def test_the_environment_of_the_job_is_there_before_python_starts(
    willing: tuple[LocalJob, list[dict[str, Any]], int],
) -> None:
    _, about, _ = willing
    assert [(me["greeting"], me["hash_randomization"]) for me in about] == [("good day", 0)] * 3


def test_the_group_listens_on_loopback_alone(willing: tuple[LocalJob, list[dict[str, Any]], int]) -> None:
    three, about, _ = willing
    pids = {three.pid, *(me["pid"] for me in about)}
    assert len(pids) == 4
    assert [me["sum_over_ranks"] for me in about] == [3.0] * 3
    listening = [c for c in psutil.net_connections("inet") if c.pid in pids and c.status == psutil.CONN_LISTEN]
    assert {c.pid for c in listening} == pids  # the store of the agent, and gloo in each worker
    assert [c.laddr for c in listening if not ipaddress.ip_address(c.laddr.ip).is_loopback] == []


def test_a_waiting_parent_is_called_now_and_then(willing: tuple[LocalJob, list[dict[str, Any]], int]) -> None:
    assert willing[2] > 0


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


def test_a_worker_that_was_killed_is_told_and_not_its_echo(tmp_path: Path) -> None:
    error = failure(tmp_path, how="sigkill")
    assert (error.kind, error.rank, error.exit_status) == ("Signal", 1, 1)
    assert "rank 1 was killed by SIGKILL" in error.message
    assert "out-of-memory" in error.message


def test_a_worker_that_leaves_without_a_word_is_told_with_its_status(tmp_path: Path) -> None:
    """The other one is asleep and hears nothing of it: the agent ends it."""
    error = failure(tmp_path, how="exit", others="sleep")
    assert (error.kind, error.rank) == ("WorkerError", 1)
    assert "exit status 3" in error.message


def test_an_agent_that_was_killed_is_told_with_its_log(tmp_path: Path) -> None:
    with job("answer", 1, tmp_path, word="") as headless:
        psutil.Process(headless.pid).kill()
        with pytest.raises(JobFailed, match="the agent ended with status -9") as caught:
            headless.receive()
    assert caught.value.error.kind == "WorkerError"
    assert (tmp_path / "agent.log").exists()


@pytest.fixture
def no_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that does not end by itself fails the test."""
    monkeypatch.setattr(subprocess.Popen, "kill", lambda agent: pytest.fail("the agent had to be killed"))


@pytest.mark.usefixtures("no_kill")
def test_closing_ends_workers_that_hang(tmp_path: Path) -> None:
    """One hangs in a collective, the other in a sleep."""
    with job("hang", 2, tmp_path) as hanging:
        hanging.receive()
        hanging.send({"op": "steps"})
        processes = family(hanging.pid)
        assert len(processes) == 3
        hanging.close(grace_s=30)
        assert alive(processes) == []


def test_closing_ends_workers_that_ignore_it(tmp_path: Path) -> None:
    with job("hang", 2, tmp_path, deaf=True) as deaf:
        deaf.receive()
        processes = family(deaf.pid)
        deaf.close(grace_s=0.5)
        assert alive(processes) == []


@pytest.mark.usefixtures("no_kill")
def test_closing_ends_a_job_that_is_still_starting(tmp_path: Path) -> None:
    with job("answer", 2, tmp_path, word="") as starting:
        assert wait_until(lambda: len(family(starting.pid)) == 3)
        processes = family(starting.pid)
        starting.close(grace_s=30)
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
    command = [sys.executable, "-c", PARENT, str(tmp_path), when]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment()}) as parent:
        assert parent.stdout is not None
        agent = int(parent.stdout.readline())
        assert wait_until(lambda: len(family(agent)) == 3)
        processes = family(agent)
        parent.kill()
    assert wait_until(lambda: not alive(processes))


def test_an_agent_that_does_not_run_yet_is_killed_in_time() -> None:
    """Its process id is not waited for: there may never be one."""
    told: list[str] = []
    agent = Child(cast(Any, SimpleNamespace(tell=lambda message: told.append(message["do"]))), 0)
    waiting = object.__new__(LocalJob)
    waiting._agent, waiting._hang = agent, cast(Any, object())
    closing = threading.Thread(target=waiting.close, args=(0.1,), daemon=True)
    closing.start()
    wait_until(lambda: "kill" in told)
    agent.put({"ended": -9})
    closing.join(10)
    assert not closing.is_alive()
    assert told == ["hang-up", "kill"]


def test_a_system_without_room_for_a_process_is_a_job_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **named: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("worldsize.launch.local.WARM", SimpleNamespace(get=full))
    with pytest.raises(JobFailed) as failed:
        start("launch_entries:answer", 1, tmp_path)
    assert (failed.value.error.kind, failed.value.error.message) == (
        "BlockingIOError",
        "Resource temporarily unavailable",
    )
