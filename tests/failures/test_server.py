"""The warm server is killed, or the system has no room for its children: the command says so and goes on, or ends."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from commands import finish
from failing import ALONE, DATA, GRID, PAIR, Place, wait_for
from served import ITS_OWN

TIMED = ("study", *GRID, *DATA, "--steps", 40, "--target-interval", 0, "--out", "run")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    where = Place(tmp_path)
    yield where
    assert where.left() == []


def server_of(process: Any) -> psutil.Process:
    """The warm server that a command has begun."""
    children = psutil.Process(process.pid).children()
    [found] = [each for each in children if "worldsize.launch.server" in " ".join(each.cmdline())]
    return found


def warnings_of(place: Place, cell: str) -> list[str]:
    return [each["code"] for each in place.record(cell)["warnings"]]


def test_killed_while_data_and_model_are_looked_at(place: Place) -> None:
    process = place.start(*TIMED, **ITS_OWN)
    wait_for(lambda: bool(psutil.Process(process.pid).children()), "a server")
    server_of(process).kill()
    done = finish(process, place.folder)
    assert done.returncode == 0, done.stderr
    assert {place.record(cell)["state"] for cell in (ALONE, PAIR)} == {"complete"}


def test_killed_while_steps_are_timed(place: Place) -> None:
    process = place.start(*TIMED, **ITS_OWN)
    wait_for(lambda: len(place.lines()) > 10, "some steps")
    workers = psutil.Process(process.pid).children(recursive=True)
    server_of(process).kill()
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive, "nothing that the server has started outlives it"
    written = place.lines()
    done = finish(process, place.folder)
    assert done.returncode == 0, done.stderr
    assert place.lines()[: len(written)] == written
    assert {place.record(cell)["state"] for cell in (ALONE, PAIR)} == {"complete"}
    assert "ran-again" in warnings_of(place, ALONE) + warnings_of(place, PAIR)
    [told] = {
        each["message"].split("because: ")[-1]
        for cell in (ALONE, PAIR)
        for each in place.record(cell)["warnings"]
        if each["code"] == "ran-again"
    }
    assert "the process that starts the workers has ended, with status -9" in told


def test_killed_in_a_training(place: Place) -> None:
    process = place.go_on("--max-restarts", 1, **ITS_OWN)
    wait_for(lambda: len(place.lines()) > 20, "some steps after a checkpoint")
    server_of(process).kill()
    done = finish(process, place.folder)
    assert done.returncode == 0, done.stderr
    assert {place.record(cell)["state"] for cell in (ALONE, PAIR)} == {"complete"}
    assert {"restarted", "ran-again"} & {*warnings_of(place, PAIR), *warnings_of(place, ALONE)}


GROUPS = Path("/sys/fs/cgroup/pids")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that limits how many processes and threads there are."""
    made = GROUPS / f"worldsize-{os.getpid()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no control group for processes can be made here: {error}")
    yield made
    made.rmdir()


def test_a_system_without_room_for_processes(place: Place, group: Path) -> None:
    """The server may start no further process when the pair of workers is to be launched; the one worker goes on."""
    process = place.start(*TIMED, "--warmup-steps", 6000, **ITS_OWN)
    wait_for(lambda: bool(place.lines(ALONE)) or process.poll() is not None, "the worker that is alone warms up")
    (group / "cgroup.procs").write_text(str(server_of(process).pid))
    (group / "pids.max").write_text("1")
    done = finish(process, place.folder)
    assert done.returncode == 1, done.stderr
    assert place.record(ALONE)["state"] == "complete"
    assert place.record(PAIR)["state"] == "failed"
    assert "cannot start a process" in place.record(PAIR)["error"]["message"]
    assert "Traceback" not in done.stderr
