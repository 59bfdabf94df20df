"""Further seeds and parts of an experiment that were run and are gone: they are named, and no ratio is made without."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from in_process import worldsize
from made_runs import make_run, usual_cells
from made_trainings import Course, make_large_batch, make_trainings
from worldsize.analysis.efficiency import compared
from worldsize.analysis.study import analyse
from worldsize.errors import DAMAGED
from worldsize.results.folder import load_run

COURSES = [Course(1, 32, [[0.7, 0.9, 0.95]] * 3), Course(2, 32, [[0.5, 0.7, 0.9]] * 3)]
"""Two workers take more samples to 80 %, with each of three seeds."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_trainings(tmp_path / "run", COURSES, seeds=3, target_accuracy=0.8)


Lose = Callable[[Path, str], None]


def gone(run: Path, name: str) -> None:
    shutil.rmtree(run / "parts" / name)


def record_gone(run: Path, name: str) -> None:
    (run / "parts" / name / "study.json").unlink()


def test_all_seeds_are_there(run: Path) -> None:
    analysis = analyse(load_run(run))
    [_, row] = compared(analysis).rows
    assert row.statistical is not None
    assert row.statistical.samples == 3
    assert not analysis.damaged


@pytest.mark.parametrize(("lose", "name"), [(record_gone, "seed1"), (gone, "seed1"), (record_gone, "seed2")])
def test_a_seed_that_is_gone_is_named_and_leaves_no_ratio(run: Path, lose: Lose, name: str) -> None:
    """That of the others would be that of the lucky ones."""
    lose(run, name)
    analysis = analyse(load_run(run))
    assert [*analysis.run.unread] == [f"parts/{name}"]
    [_, row] = compared(analysis).rows
    assert row.statistical is None
    assert row.remark.startswith(f"not evaluated with seed {name[-1]}")
    assert worldsize("report", run, cwd=run.parent).returncode == DAMAGED


def test_a_seed_that_was_not_begun_is_not_lost(run: Path) -> None:
    gone(run, "seed2")
    (run / "parts" / "seed2").mkdir()  # it is made before its study.json
    assert load_run(run).unread == {}


def test_steps_in_turn_come_after_all_seeds(run: Path) -> None:
    make_run(run / "parts" / "throughput", usual_cells(blocks=1))
    gone(run, "seed1")
    gone(run, "seed2")
    assert [*load_run(run).unread] == ["parts/seed1", "parts/seed2"]


def test_those_of_the_large_batch(tmp_path: Path) -> None:
    run = make_large_batch(tmp_path / "run", COURSES, usual_cells(blocks=1), seeds=3)
    assert load_run(run).unread == {}
    gone(run, "accuracy")
    gone(run, "accuracy-seed1")
    assert [*load_run(run).unread] == ["parts/accuracy", "parts/accuracy-seed1"]
    gone(run, "accuracy-seed2")
    assert load_run(run).unread == {}, "nothing says that they were begun"
    make_run(run / "parts" / "demonstrations", [])
    assert [*load_run(run).unread] == ["parts/accuracy", "parts/accuracy-seed1", "parts/accuracy-seed2"]
