"""The program that runs commands on a node, started here: what a study hears of it, also of an order broken off."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from commands import processes_of
from jobs import wait_until
from user_scripts import put
from worldsize.config import CellSettings, CommandSettings
from worldsize.launch.ray.program import LocalProgram
from worldsize.ranks.turns import Turn
from worldsize.results.records import Placement, WarningRecord
from worldsize.study.commands_on_node import CommandsOnNode
from worldsize.study.executor import CellFailed
from worldsize.study.plan import PlannedCell

PLACE = Placement(
    processes=1, threads_per_worker=1, cores=((0,),), oversubscribed=False, device="cpu", backend="gloo", room_cores=1
)
STEPS = Turn(op="steps", count=5)


class Here(LocalProgram):
    """The program without a cluster between it and the study."""

    def receive(self, idle: Callable[[], None] | None = None) -> list[Any]:
        if idle is not None:
            idle()
        return super().receive()

    def close(self) -> None:
        self.hang_up()
        self._process.wait()
        self._stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return not self._stdout.closed


def cell(script: str) -> PlannedCell:
    program = CommandSettings(words=(sys.executable, script, "--token", "hush"), shown=script, in_place=True)
    return PlannedCell(CellSettings(strategy=Path(script).stem, batch_size=1, program=program), PLACE)


class Study:
    """What a study has: the program, and what it has heard."""

    def __init__(self, place: Path) -> None:
        settings = {"session": 0, "hang_timeout_s": None, "one_at_a_time": False, "in_place": True}
        told = json.dumps({"run": str(place / "run"), **settings})
        self.noted: list[WarningRecord] = []
        self.ended: list[tuple[str, bool]] = []
        self.program = Here("worldsize.study.commands_on_node", told, dict(os.environ))
        self.executor = CommandsOnNode(
            self.program, noted=self.noted.append, ended_by_itself=lambda cell, made: self.ended.append((cell.id, made))
        )

    def close(self) -> float:
        """End the study; returns the seconds that it took."""
        begun_s = time.monotonic()
        self.executor.close()
        return time.monotonic() - begun_s


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Study]:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "for _ in range(12): step()", "ends.py")
    put(tmp_path, "assert sys.argv[1:] == ['--token', 'hush']\nwhile True: step(0.005)", "goes.py")
    study = Study(tmp_path)
    yield study
    if study.program.runs:
        study.close()
    assert not processes_of(tmp_path)


def test_turns_are_taken_and_an_end_is_told(study: Study) -> None:
    goes, ends = cell("goes.py"), cell("ends.py")
    assert [facts.samples for facts in study.executor.facts(goes)] == [6]
    [reply] = study.executor.take(goes, STEPS, lambda: None)
    assert len(reply.step_s) >= 5, "it makes some more until it stands still"
    assert study.executor.alive(goes)
    for _ in range(3):
        study.executor.take(ends, STEPS, lambda: None)
    assert {name for name, _ in study.ended} == {ends.id}


def test_what_cannot_be_started_fails_as_here(study: Study) -> None:
    missing = cell("goes.py")
    program = CommandSettings(words=("/no/such/program",), shown="it", in_place=True)
    broken = PlannedCell(missing.settings.model_copy(update={"strategy": "it", "program": program}), PLACE)
    with pytest.raises(CellFailed, match="No such file") as failed:
        study.executor.take(broken, STEPS, lambda: None)
    assert failed.value.error.kind == "StartError"
    assert len(study.executor.take(missing, STEPS, lambda: None)[0].step_s) == 5, "the others go on"


@pytest.mark.parametrize("wait_s", [0.0, 0.5])
def test_a_study_that_is_interrupted_in_a_turn_ends_it_at_once(study: Study, wait_s: float) -> None:
    goes = cell("goes.py")
    study.executor.take(goes, STEPS, lambda: None)

    def interrupt() -> None:
        time.sleep(wait_s)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study.executor.take(goes, Turn(op="steps", count=100_000), interrupt)
    assert study.close() < 30, "the turn would take ten minutes"


def test_a_program_that_is_lost_fails_each_cell_and_leaves_nothing(study: Study, tmp_path: Path) -> None:
    goes = cell("goes.py")
    study.executor.take(goes, STEPS, lambda: None)
    os.kill(study.program.pid, signal.SIGKILL)
    for ask in (study.executor.facts, study.executor.finish):
        with pytest.raises(CellFailed, match="ended with status -9"):
            ask(goes)
    assert not study.executor.alive(goes)
    study.executor.launch([goes])
    assert wait_until(lambda: not processes_of(tmp_path)), processes_of(tmp_path)
