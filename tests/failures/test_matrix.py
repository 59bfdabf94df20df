"""Everything that can fail on one machine, in one study that goes on after each (docs/reliability.md).

The tests share a run folder and come in the order of the file; each alone begins the study anew. In the end it is
complete, and its losses are those of a study that was never disturbed.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import LONG_S, finish, worker
from failing import ALONE, EPOCH, EPOCHS, HANGS_AT, PAIR, STUDY, Place, is_kept, wait_for, whole_lines
from rights import needs_rights
from worldsize.study.folder_lock import hold_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    where = Place(tmp_path_factory.mktemp("failures"))
    yield where
    assert where.left() == []


@pytest.fixture(autouse=True)
def nothing_is_lost(place: Place) -> Iterator[None]:
    """No failure takes away a line that was written before, or touches a finished cell."""
    written, finished = place.written(), finished_cells(place)
    yield
    assert is_kept(written, place.written())
    assert finished.items() <= finished_cells(place).items()


def finished_cells(place: Place) -> dict[str, bytes]:
    """Every byte of the cells that are complete, but for the reports of their jobs."""
    found = {}
    for record in place.run.glob("cells/*/cell.json"):
        if json.loads(record.read_text())["state"] == "complete":
            files = sorted(path for path in record.parent.glob("*") if path.is_file() and path.suffix != ".parquet")
            found[record.parent.name] = b"".join(path.read_bytes() for path in files if path.name != "columns.json")
    return found


def disturbed(place: Place, disturb: Callable[[Any], object], *arguments: object, steps: int = 3) -> Any:
    """Run the study, disturb it some steps after it began or went on, and wait for its end."""
    before = len(place.lines())
    process = place.go_on(*arguments)
    try:
        wait_for(lambda: len(place.lines()) >= before + steps or process.poll() is not None, "some steps")
        seen = place.written()
        assert process.poll() is None, process.communicate()
        disturb(process)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    done = finish(process, place.folder)
    assert is_kept(seen, place.written())
    assert place.left() == []
    return done


def why(place: Place) -> tuple[str, int | None, str]:
    record = place.record()
    assert record["state"] == "failed"
    error = record["error"]
    return error["kind"], error["rank"], error["message"]


def test_an_exception_on_one_rank_only_after_a_kill_beside_other_cells(place: Place) -> None:
    """A kill may have been the kernel's, for memory: that turn is run again, without other cells beside it.

    The exception ends the cell; the other one goes on to its end.
    """
    trip = place.folder / "raise-1"

    def disturb(process: Any) -> None:
        before = len(place.lines())
        worker(place.folder, 1, PAIR).kill()
        wait_for(lambda: len(place.lines()) > before + 2 or process.poll() is not None, "it goes on")
        assert process.poll() is None, process.communicate()
        trip.touch()

    done = disturbed(place, disturb)
    trip.unlink()
    assert done.returncode == 1
    assert why(place) == ("ValueError", 1, "ValueError: this model fails here")
    assert place.record(ALONE)["state"] == "complete"
    [warning] = [each for each in place.record()["warnings"] if each["code"] == "ran-again"]
    assert "rank 1 was killed by SIGKILL" in warning["message"]


def test_a_rank_killed_with_9(place: Place) -> None:
    """With no other cell in memory: the one before has brought the other one to its end."""
    if ALONE not in finished_cells(place):
        test_an_exception_on_one_rank_only_after_a_kill_beside_other_cells(place)
    done = disturbed(place, lambda _: worker(place.folder, 1, PAIR).kill())
    assert done.returncode == 1, done.stderr
    assert why(place)[:2] == ("Signal", 1)
    assert "rank 1 was killed by SIGKILL" in " ".join((done.stderr + done.stdout).split())


def test_a_rank_that_hangs(place: Place) -> None:
    """The one that hangs is told from the one that waits for it, and where it is."""
    trip = place.folder / "hang-1"
    done = disturbed(place, lambda _: trip.touch(), "--hang-timeout", "8s")
    trip.unlink()
    assert done.returncode == 1
    kind, rank, message = why(place)
    assert (kind, rank) == ("Hang", 1)
    assert f"rank 1 hangs in {place.folder}/mine.py, line {HANGS_AT}, in hang; rank 0 waits for it" in message
    assert place.record()["error"]["traceback"].count("in forward") == 1


def test_a_rank_that_is_stopped(place: Place) -> None:
    """It cannot answer, and ends only with the agent."""
    done = disturbed(place, lambda _: worker(place.folder, 0, PAIR).suspend(), "--hang-timeout", "8s")
    assert done.returncode == 1
    kind, rank, message = why(place)
    assert (kind, rank) == ("Hang", 0)
    assert "rank 0 is stopped by a signal (SIGSTOP); rank 1 waits for it" in message


def test_ctrl_c(place: Place) -> None:
    done = disturbed(place, lambda process: process.send_signal(signal.SIGINT))
    assert done.returncode == 130
    assert "Go on with --resume --out run." in done.stderr
    assert place.record()["state"] == "interrupted"


def test_sigterm_and_a_second_study_in_the_folder(place: Place) -> None:
    """The second is refused, by name of the first; the first does not notice."""
    refused = []

    def disturb(process: Any) -> None:
        workers = [worker(place.folder, rank, PAIR) for rank in range(2)]
        for each in workers:
            each.suspend()  # or, on a slow machine, the first has ended before the second has begun
        second = place.start("study", "--resume", "--out", "run")
        refused.append((second.communicate(timeout=LONG_S), second.returncode, process.pid))
        for each in workers:
            each.resume()
        process.terminate()

    done = disturbed(place, disturb)
    assert done.returncode == 130
    assert place.record()["state"] == "interrupted"
    [((out, err), status, first)] = refused
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        f"worldsize: run is in use: process {first} runs a study in it",
        "Wait for its end, or give another --out.",
    ]


def test_the_parent_killed_with_9(place: Place) -> None:
    before = len(place.lines())
    process = place.go_on()
    wait_for(lambda: len(place.lines()) >= before + 3, "some steps")
    seen = place.written()
    process.kill()
    process.communicate()
    wait_for(lambda: not place.left(killed=True), "no process left")
    assert is_kept(seen, place.written())
    assert place.record()["state"] == "running"
    with hold_folder(place.run):  # as the next start does
        assert place.left() == []


class TestWithRights:
    """Everything below mounts, in a namespace of its own."""

    pytestmark = needs_rights

    def test_a_full_disk(self, place: Place) -> None:
        """A small disk holds the run folder, and something else fills it."""
        (place.folder / "disk").mkdir(exist_ok=True)
        commands = [
            "mount -t tmpfs -o size=4m none disk",
            "if [ -d run ]; then cp -a run disk/run; set -- study --resume; fi",
            f'{sys.executable} -m worldsize "$@" --out disk/run; status=$?',
            "rm -f disk/filler; rm -rf run; cp -a disk/run run; exit $status",
        ]
        process = in_mounts(place, "\n".join(commands), *STUDY)
        inside = Path(f"/proc/{process.pid}/root") / str(place.folder)[1:] / "disk"
        file = inside / "run" / "cells" / PAIR / "rank0.jsonl"
        before = len(place.lines())
        wait_for(lambda: len(whole_lines(file)) >= before + 3 or process.poll() is not None, "some steps")
        assert process.poll() is None, process.communicate()
        fill(inside / "filler")
        done = finish(process, place.folder)
        assert done.returncode == 2, done.stderr
        assert "No space left on device" in done.stderr
        assert "--resume" in done.stderr
        assert "Traceback" not in done.stderr
        assert place.left() == []

    def test_a_read_only_folder(self, place: Place) -> None:
        place.run.mkdir(exist_ok=True)
        commands = ["mount --bind run run && mount -o remount,ro,bind run", f'{sys.executable} -m worldsize "$@"']
        how = ("study", "--resume") if (place.run / "study.json").exists() else STUDY
        done = finish(in_mounts(place, "\n".join(commands), *how, "--out", "run"), place.folder)
        assert done.returncode == 2
        assert "cannot write in run" in done.stderr


def in_mounts(place: Place, script: str, *arguments: object) -> "subprocess.Popen[str]":
    """Run a script of the shell in mounts of its own, which nobody else sees and which end with it."""
    return subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", script, "sh", *map(str, arguments)],
        cwd=place.folder,
        env={**os.environ, "TMPDIR": str(place.folder / "tmp"), "SLOW_S": "0.1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def fill(file: Path) -> None:
    """Write until there is no room left, to the last byte."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT)
    size = 2**16
    while size:
        try:
            os.write(handle, bytes(size))
        except OSError:
            size //= 2
    os.close(handle)


CLOCK = """
import os, time
from pathlib import Path
_time, _time_ns, _file = time.time, time.time_ns, Path(__file__).parent / "ahead"

def _ahead():
    return float(_file.read_text() or 0) if _file.exists() else 0.0

time.time = lambda: _time() + _ahead()
time.time_ns = lambda: _time_ns() + int(_ahead() * 1e9)
"""


def test_a_clock_that_jumps_and_the_study_is_complete(place: Place) -> None:
    """The wall clock of parent, agents and workers goes back by an hour, then ahead by a day."""
    clock = place.folder / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join(filter(None, [str(clock), os.environ.get("PYTHONPATH")]))
    before = len(place.lines())
    process = place.go_on("--hang-timeout", "60s", PYTHONPATH=path)
    wait_for(lambda: len(place.lines()) >= before + 2, "some steps")
    (clock / "ahead").write_text("-3600")
    wait_for(lambda: len(place.lines()) >= before + 5, "some more")
    (clock / "ahead").write_text("86400")
    done = finish(process, place.folder)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in place.lines()]
    assert all(0 < step["step_s"] < 600 for step in steps)
    assert {cell: place.record(cell)["state"] for cell in (ALONE, PAIR)} == dict.fromkeys((ALONE, PAIR), "complete")


def test_in_the_end_the_losses_are_those_of_a_study_that_was_never_disturbed(place: Place, whole: Place) -> None:
    if not place.run.exists() or place.record()["state"] != "complete":
        finish(place.go_on(SLOW_S="0"), place.folder)
    for rank in (0, 1):
        assert sorted(place.losses(rank=rank)) == list(range(EPOCHS * EPOCH))
        assert place.losses(rank=rank) == whole.losses(rank=rank)
    assert place.losses(ALONE) == whole.losses(ALONE)


def test_a_port_in_use(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        by_hand = ("--master-ip", "127.0.0.1", "--num-nodes", 2, "--rank", 0, "--master-port", port)
        done = finish(place.start("train", *by_hand), place.folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"worldsize: --master-port {port} cannot be had on this node: address already in use",
        "Give another --master-port, the same on every node.",
    ]
