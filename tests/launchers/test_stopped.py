"""A study of worldsize's own workers and one under torchrun: the same lock, the same stop, the same watch."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from commands import LONG_S, TYPED, finish, processes_of, wait_until
from same_study import MODEL
from worldsize.results.files import cell_folder
from worldsize.results.folder import Run, load_run

CELL = "ddp-w2-b4"
FAILS_ALONE = """
import traceback

class Fails(Net):
    calls = 0

    def forward(self, images):
        alone = not any("nn/parallel" in frame.filename for frame in traceback.extract_stack())
        self.calls += self.training and alone
        if self.calls > 3:
            raise ValueError("told to")
        return super().forward(images)

def net(classes):
    return Fails(classes)
"""
"""After some steps, where no DDP is around it."""
STUDY = ("study", "--model", "mine.py:net", "--data", "synthetic:3x8x8:10:64", "--threads-per-worker", "1")
GRID = ("--strategies", "single,ddp", "--world-sizes", "1,2", "--batch-sizes", "4", "--baseline", "single")
STEPS = ("--steps", "200", "--block-steps", "2", "--warmup-steps", "1", "--target-interval", "0", "--evaluate", "never")
STARTERS: dict[str, Sequence[str]] = {
    "local": ("-m", "worldsize"),
    "torchrun": ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "worldsize"),
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    (tmp_path / "slow").touch()
    return tmp_path


def start(starter: str, place: Path, *more: str) -> "subprocess.Popen[str]":
    words = [
        *TYPED,
        sys.executable,
        *STARTERS[starter],
        *(() if "--resume" in more else (*STUDY, *GRID, *STEPS)),
        *more,
    ]
    return subprocess.Popen(
        [*words, "--out", "run"],
        cwd=place,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def lines(place: Path, cell: str = CELL) -> int:
    file = cell_folder(place / "run", cell) / "rank0.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def running(place: Path, starter: str) -> "subprocess.Popen[str]":
    """A study in the middle of its blocks."""
    study = start(starter, place)
    wait_until(lambda: lines(place) > 5, study)
    return study


def resumed(place: Path, starter: str) -> Run:
    """The study went on to its end, with fewer steps asked for."""
    (place / "slow").unlink()
    path = place / "run" / "study.json"
    record = json.loads(path.read_text())
    record["settings"]["steps"] = 20
    path.write_text(json.dumps(record))
    done = finish(start(starter, place, "study", "--resume"), place)
    assert done.returncode == 0, done.stderr
    return load_run(place / "run")


def refused_beside(study: "subprocess.Popen[str]", place: Path, starter: str) -> None:
    """A folder in use is refused, and the study that uses it goes on."""
    other = start(starter, place, "study", "--resume")
    said = other.communicate(timeout=LONG_S)[1]
    assert other.returncode != 0
    assert "run is in use: process" in said
    assert study.poll() is None


@pytest.mark.parametrize("starter", STARTERS)
@pytest.mark.parametrize("how", ["SIGTERM", "Ctrl-C"])
def test_a_study_that_is_stopped_ends_in_order_and_goes_on(place: Path, starter: str, how: str) -> None:
    study = running(place, starter)
    if how == "Ctrl-C":
        refused_beside(study, place, starter)
        os.killpg(study.pid, signal.SIGINT)
    else:
        study.send_signal(signal.SIGTERM)
    done = finish(study, place)
    assert done.returncode != 0
    assert done.stderr.count("worldsize: stopped; what was measured is in run") == 1
    assert "Go on with --resume --out run." in done.stderr
    assert "report: run/report/index.html" in done.stdout, "what was measured is reported"
    found = load_run(place / "run")
    assert {cell.record.state for cell in found.cells.values()} == {"interrupted"}
    assert found.cells[CELL].record.summary is not None
    psutil.wait_procs(processes_of(place), timeout=10)
    assert not processes_of(place)

    before = lines(place)
    again = resumed(place, starter)
    assert {cell.record.state for cell in again.cells.values()} == {"complete"}
    assert lines(place) > before
    assert len(again.study.sessions) == 1


@pytest.mark.parametrize("starter", STARTERS)
def test_a_cell_that_fails_is_in_the_exit_status(place: Path, starter: str) -> None:
    """One of one worker fails; the others go on, are reported, and the status says that not all did."""
    (place / "mine.py").write_text(MODEL + FAILS_ALONE)
    (place / "slow").unlink()
    done = finish(start(starter, place, "--steps", "8"), place)
    assert done.returncode != 0
    assert "report: run/report/index.html" in done.stdout
    states = {name: cell.record.state for name, cell in load_run(place / "run").cells.items()}
    assert states == {"single-w1-b4": "failed", CELL: "complete"}


@pytest.mark.parametrize("starter", STARTERS)
def test_what_else_goes_on_is_noted_without_the_other_ranks(place: Path, starter: str) -> None:
    """The ranks of the study compute, and are no other load."""
    (place / "slow").unlink()
    steps = ("--steps", "60", "--block-steps", "20")
    done = finish(start(starter, place, *steps), place)
    assert done.returncode == 0, done.stderr
    noted = load_run(place / "run").cells[CELL].record.conditions
    assert noted
    assert {each.session for each in noted} == {0}
