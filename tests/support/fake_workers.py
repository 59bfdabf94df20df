"""Studies of which everything is real but the workers: their place is taken by FakeExecutor (fake_cells.py)."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fake_cells import FakeExecutor
from no_links import leave_links_out
from worldsize.config import Room, StudySettings
from worldsize.results.files import cell_folder
from worldsize.results.folder import Run
from worldsize.results.records import Findings
from worldsize.study import run as study_run
from worldsize.study.probe import room_of
from worldsize.training.probe import look

BLOCK_STEPS = 2
SETTINGS = StudySettings(
    model="vgg11",
    data="synthetic:3x32x32:10:64",
    strategies=("single", "ddp"),
    world_sizes=(1, 2),
    batch_sizes=(4,),
    baseline="single",
    threads_per_worker=1,
    steps=18,
)
SINGLE, DDP = "single-w1-b4", "ddp-w2-b4"


@cache
def found(settings: StudySettings, room: Room) -> Findings:
    return look(settings, room)


class Executors:
    """Makes the executor of each study; `options` are those of the next one."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.made: list[FakeExecutor] = []

    def make(self, run: Path, session: int, *rest: object, **options: object) -> FakeExecutor:
        self.made.append(FakeExecutor(run, session, **self.options))
        self.options = {}
        return self.made[-1]


def states(run: Run) -> dict[str, str]:
    return {name: cell.record.state for name, cell in run.cells.items()}


def timed_per_session(run: Run, name: str) -> dict[int, int]:
    steps = run.cells[name].steps.filter("timed")
    return dict(steps.filter(steps["rank"] == 0).group_by("session").len().rows())


def files_of(run: Path, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cell_folder(run, name).iterdir()}


def fake_workers(monkeypatch: pytest.MonkeyPatch) -> Executors:
    """Studies look at data and model in this process, once for all tests, and their workers are fake."""
    made = Executors()
    monkeypatch.setattr(study_run, "probe", lambda settings, cluster: found(settings, room_of(cluster)))
    monkeypatch.setattr(study_run, "JobExecutor", made.make)
    leave_links_out(monkeypatch)
    return made
