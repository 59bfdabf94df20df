"""A study that ended with its budget goes on where a larger one is given, and takes what that has more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fake_workers import DDP, SETTINGS, SINGLE, Executors, fake_workers, files_of, states, timed_per_session
from heard import Heard
from worldsize.errors import Interrupted, UsageError
from worldsize.results.files import cell_folder
from worldsize.results.folder import Run, load_run
from worldsize.study import run as study_run
from worldsize.study.run import run_study

NOISE = np.random.default_rng(0)


def noisy(*_: object) -> float:
    """Seconds of a step. Shorter ones make more blocks in a budget, and all are computed with after each."""
    return float(NOISE.uniform(0.6, 1.4))


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Executors:
    return fake_workers(monkeypatch)


@pytest.fixture
def clock(executors: Executors, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Time goes on by what the fake workers take, over all sessions."""
    told = SimpleNamespace(monotonic=lambda: sum(each.clock_s for each in executors.made))
    monkeypatch.setattr(study_run, "time", told)
    return told


def study(executors: Executors, out: Path, budget: str, *, interval: float = 1e-4, **options: Any) -> Run:
    settings = SETTINGS.model_copy(update={"steps": None, "budget": budget, "target_interval": interval})
    executors.options = {"step_time": noisy}
    return run_study(settings, out, **options)


def test_it_goes_on_for_what_a_larger_budget_has_more(executors: Executors, clock: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = study(executors, out, "120s")
    assert "budget" in {cell.record.ended_by for cell in first.cells.values()}
    assert 60 < clock.monotonic() <= 120
    before, then_s = files_of(out, DDP)["rank0.jsonl"], clock.monotonic()

    run = study(executors, out, "200s", resume=True)
    assert 40 < clock.monotonic() - then_s <= 80
    assert files_of(out, DDP)["rank0.jsonl"].startswith(before), "nothing that was measured is lost"
    assert set(states(run).values()) == {"complete"}
    for name in (SINGLE, DDP):
        was, now = timed_per_session(first, name), timed_per_session(run, name)
        assert now[0] == was[0]
        assert now[1] > 0, "each is compared with the other in the same blocks"
    assert run.study.asked.budget == "200s"


def stopped(executors: Executors, out: Path, after: int) -> None:
    settings = SETTINGS.model_copy(update={"steps": None, "budget": "200s", "target_interval": 1e-4})
    executors.options = {"stops_after": after}
    with pytest.raises(Interrupted):
        run_study(settings, out, resume=True)


@pytest.mark.parametrize("after", [0, 1, 9])
def test_one_that_was_stopped_while_it_went_on_still_can(
    executors: Executors, clock: Any, tmp_path: Path, after: int
) -> None:
    """With all its cells, and for the difference; also where no more is said than --resume."""
    out = tmp_path / "run"
    study(executors, out, "120s")
    stopped(executors, out, after)
    then_s = clock.monotonic()
    run = study(executors, out, load_run(out).study.asked.budget or "", resume=True)
    assert 40 < clock.monotonic() - then_s <= 80
    assert {timed_per_session(run, name)[2] > 0 for name in (SINGLE, DDP)} == {True}
    assert set(states(run).values()) == {"complete"}
    study(executors, out, "200s", resume=True)
    assert executors.made[-1].log == [], "now it is used up"


def test_one_that_is_killed_before_it_measures_still_can(
    executors: Executors, clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    study(executors, out, "120s")
    with monkeypatch.context() as patch:
        patch.setattr(study_run, "measure_links", lambda *_: 1 / 0)
        patch.setattr(study_run, "needed", lambda *_: True)
        with pytest.raises(ZeroDivisionError):
            study(executors, out, "200s", resume=True)
    run = study(executors, out, "200s", resume=True)
    assert {timed_per_session(run, name)[2] > 0 for name in (SINGLE, DDP)} == {True}


def test_nothing_is_added_to_columns_whose_lines_are_gone(executors: Executors, clock: Any, tmp_path: Path) -> None:
    """New lines would take their place, or not be read."""
    out = tmp_path / "run"
    first = study(executors, out, "120s")
    for path in cell_folder(out, DDP).glob("rank*.jsonl"):
        path.unlink()
    with pytest.raises(UsageError, match=f"lines of {DDP} in .* are gone.*\nGive another --out"):
        study(executors, out, "200s", resume=True)
    assert load_run(out).cells[DDP].steps.equals(first.cells[DDP].steps)


def test_cells_that_are_evaluated_at_their_end_cannot_go_on(executors: Executors, clock: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = SETTINGS.model_copy(update={"steps": None, "target_interval": 1e-4, "evaluate": "end"})
    executors.options = {"step_time": noisy}
    run_study(settings.model_copy(update={"budget": "120s"}), out)
    with pytest.raises(UsageError, match="evaluated after their last step"):
        run_study(settings.model_copy(update={"budget": "200s"}), out, resume=True)


@pytest.mark.parametrize(("op", "turn"), [("start", 1), ("steps", 3)])
def test_a_cell_that_fails_when_it_goes_on_keeps_its_row(
    executors: Executors, clock: Any, tmp_path: Path, op: str, turn: int
) -> None:
    """It was complete: what was measured before stands, with what was timed until it failed, and says so."""
    out = tmp_path / "run"
    first = study(executors, out, "120s")
    settings = SETTINGS.model_copy(update={"steps": None, "budget": "200s", "target_interval": 1e-4})
    executors.options = {"fails": {(DDP, op): turn}, "step_time": lambda cell, now: 0.5}
    run = run_study(settings, out, resume=True)
    assert set(states(run).values()) == {"complete"}
    record, was = run.cells[DDP].record, first.cells[DDP].record
    assert (record.ended_by, record.error) == (was.ended_by, None)
    assert record.summary is not None
    assert timed_per_session(run, DDP)[0] == timed_per_session(first, DDP)[0]
    [told] = [each.message for each in record.warnings if each.code == "no-further"]
    assert f"{DDP}: it failed when it went on; what was measured stands, because: " in told
    assert timed_per_session(run, SINGLE)[1] > 0, "the others go on"


@pytest.mark.parametrize("budget", ["120s", "100s"])
def test_one_that_is_no_larger_changes_nothing(executors: Executors, clock: Any, tmp_path: Path, budget: str) -> None:
    out, heard = tmp_path / "run", Heard()
    study(executors, out, "120s")
    run = study(executors, out, budget, resume=True, listener=heard)
    assert executors.made[-1].log == []
    assert run.study.asked.budget == "120s"


def test_what_has_its_precision_needs_no_more(executors: Executors, clock: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = study(executors, out, "600s", interval=0.5)
    assert "budget" not in {cell.record.ended_by for cell in first.cells.values()}
    study(executors, out, "900s", interval=0.5, resume=True)
    assert executors.made[-1].log == []


def test_too_little_more_is_refused(executors: Executors, clock: Any, tmp_path: Path) -> None:
    out = tmp_path / "run"
    study(executors, out, "120s")
    content = (out / "study.json").read_bytes()
    with pytest.raises(
        UsageError, match=r"a budget of 121s, of which 120 s are used, is too short: .*\nGive --budget 1"
    ):
        study(executors, out, "121s", resume=True)
    assert (out / "study.json").read_bytes() == content
