"""A study from its settings to its folder, and on from where it was stopped.

Everything is real but the workers: their place is taken by an executor whose clock is told (fake_cells.py).
"""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from fake_cells import FakeExecutor
from fake_workers import (
    BLOCK_STEPS,
    DDP,
    SETTINGS,
    SINGLE,
    Executors,
    fake_workers,
    files_of,
    states,
    timed_per_session,
)
from heard import Heard
from histories import tensorboard_numbers
from worldsize.config import DEFAULT_BUDGET
from worldsize.errors import Interrupted, OutputError, UsageError
from worldsize.launch import cluster
from worldsize.measure.cores import as_cores
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell, Run, load_run, write_cell
from worldsize.study.plan import PlannedCell
from worldsize.study.run import run_study


@pytest.fixture
def executors(monkeypatch: pytest.MonkeyPatch) -> Executors:
    return fake_workers(monkeypatch)


def ctrl_c(executors: Executors, out: Path, after: int) -> Run:
    executors.options = {"stops_after": after}
    with pytest.raises(Interrupted, match=f"--resume --out {out}"):
        run_study(SETTINGS, out)
    assert executors.made[-1].closed
    return load_run(out)


def test_a_study_leaves_its_plan_its_cells_and_where_they_come_from(executors: Executors, tmp_path: Path) -> None:
    heard = Heard()
    run = run_study(SETTINGS, tmp_path / "run", command=("worldsize", "study"), listener=heard)
    assert run.study.plan == [SINGLE, DDP]
    assert run.study.settings == SETTINGS
    assert run.study.provenance.command == ("worldsize", "study")
    assert (run.study.train_samples, run.study.training[2].parameters) == (64, 9_231_114)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    assert executors.made[0].closed
    assert heard.ahead == [sum(heard.skips) + heard.steps(SINGLE) + heard.steps(DDP)]


def test_without_a_protocol_there_is_a_budget(executors: Executors, tmp_path: Path) -> None:
    run = run_study(SETTINGS.model_copy(update={"steps": None}), tmp_path / "run")
    assert run.study.asked.budget == DEFAULT_BUDGET


def test_ctrl_c_keeps_what_is_done_and_resume_adds_to_it(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped = ctrl_c(executors, out, after=2 + 4 * 2)
    assert states(stopped) == {SINGLE: "interrupted", DDP: "interrupted"}
    assert stopped.cells[DDP].record.summary is not None

    before = files_of(out, DDP)["rank0.jsonl"]
    heard = Heard()
    run = run_study(SETTINGS, out, resume=True, listener=heard)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    assert files_of(out, DDP)["rank0.jsonl"].startswith(before), "nothing that was measured is lost"
    assert timed_per_session(run, DDP)[0] == 2 * BLOCK_STEPS
    assert set(timed_per_session(run, DDP)) == {0, 1}
    assert len(run.study.sessions) == 1
    assert heard.ahead == [sum(heard.skips) + heard.steps(SINGLE) + heard.steps(DDP)]


def from_lines(run: Run, name: str, place: Path) -> pl.DataFrame:
    """The steps of a cell, whatever columns there are."""
    ignored = shutil.ignore_patterns("columns.json", "*.parquet")
    bare = shutil.copytree(cell_folder(run.folder, name), place / name, ignore=ignored)
    return Cell(bare, run.cells[name].record).steps


def test_samples_are_gathered_when_all_turns_are_over(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    stopped = ctrl_c(executors, out, after=2 + 4 * 2)
    assert not list(out.glob("cells/*/*.parquet")), "they go on"
    assert not list(out.glob("cells/*/columns.json"))
    before = stopped.cells[DDP].steps
    run = run_study(SETTINGS, out, resume=True)
    assert [warning.code for warning in run.study.warnings].count("not-packed") == 0
    for name in (SINGLE, DDP):
        wanted = from_lines(run, name, tmp_path)
        for path in cell_folder(out, name).glob("rank*.jsonl"):
            path.unlink()
        steps = run.cells[name].steps
        assert steps.equals(wanted), "both sessions, each step once"
        assert steps.select("rank", "session", "step").is_unique().all()
    first = steps.filter(steps["session"] == 0)
    assert first.equals(before)


def test_a_cell_that_goes_on_after_all_is_gathered_again(executors: Executors, tmp_path: Path) -> None:
    """As when somebody sets its state back, to have more of it."""
    run = run_study(SETTINGS, tmp_path / "run")
    before = run.cells[DDP].steps
    write_cell(run.folder, run.cells[DDP].record.model_copy(update={"state": "interrupted"}))
    executors.options = {"stops_after": 3}
    with pytest.raises(Interrupted):
        run_study(SETTINGS, run.folder, resume=True)
    for opened in (load_run, partial(run_study, SETTINGS, resume=True)):
        again = opened(run.folder)
        steps = again.cells[DDP].steps
        place = tmp_path / str(len(again.study.sessions))
        assert steps.equals(from_lines(again, DDP, place))
        assert steps.filter(steps["session"] == 0).equals(before)
        assert steps["session"].n_unique() == 1 + len(again.study.sessions)
    assert again.cells[DDP].record.state == "complete"
    assert again.cells[DDP].problem is None


def test_samples_that_cannot_be_gathered_are_a_warning(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ctrl_c(executors, out, after=2 + 4 * 2)
    (cell_folder(out, SINGLE) / "steps.parquet" / "mine").mkdir(parents=True)
    run = run_study(SETTINGS, out, resume=True)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    [warning] = [each for each in run.study.warnings if each.code == "not-packed"]
    assert f"the samples of {SINGLE} stay lines" in warning.message
    assert timed_per_session(run, SINGLE).keys() == {0, 1}
    assert (cell_folder(out, DDP) / "columns.json").exists()


def test_ctrl_c_between_two_ends_leaves_the_first_complete(executors: Executors, tmp_path: Path) -> None:
    """Steady cells end at the fifth block; the study is stopped while workers are still being ended."""
    out = tmp_path / "run"
    finish = FakeExecutor.finish

    def stop_at_the_second(self: FakeExecutor, cell: PlannedCell) -> None:
        finish(self, cell)
        if len(self.ended) == 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeExecutor, "finish", stop_at_the_second)
        with pytest.raises(Interrupted):
            run_study(SETTINGS, out)
    assert states(load_run(out)) == {SINGLE: "complete", DDP: "interrupted"}
    resumed = run_study(SETTINGS, out, resume=True)
    assert states(resumed) == {SINGLE: "complete", DDP: "complete"}
    assert {name for name, _, _ in executors.made[-1].log} == {DDP}


def test_sigterm_is_like_ctrl_c_and_the_handler_is_put_back(executors: Executors, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    told = iter(range(20))

    def step_time(cell: PlannedCell, now: float) -> float:
        if next(told) == 10:
            os.kill(os.getpid(), signal.SIGTERM)
        return 0.5

    executors.options = {"step_time": step_time}
    with pytest.raises(Interrupted) as caught:
        run_study(SETTINGS, tmp_path / "run")
    assert caught.value.exit_status == 130
    assert signal.getsignal(signal.SIGTERM) == before
    assert set(states(load_run(tmp_path / "run")).values()) == {"interrupted"}


def test_a_study_runs_in_any_thread(executors: Executors, tmp_path: Path) -> None:
    """Only the main thread may set signal handlers; a library is called from others too."""
    runs: list[Run] = []
    thread = threading.Thread(target=lambda: runs.append(run_study(SETTINGS, tmp_path / "run")))
    thread.start()
    thread.join()
    assert states(runs[0]) == {SINGLE: "complete", DDP: "complete"}


def missing_folder(out: Path) -> None:
    shutil.rmtree(cell_folder(out, DDP))


def missing_record(out: Path) -> None:
    (cell_folder(out, DDP) / "cell.json").unlink()


@pytest.mark.parametrize("lose", [missing_folder, missing_record])
def test_resume_runs_only_what_is_missing(executors: Executors, tmp_path: Path, lose: Callable[[Path], None]) -> None:
    out = tmp_path / "run"
    run_study(SETTINGS, out)
    kept = files_of(out, SINGLE)
    lose(out)
    run = run_study(SETTINGS, out, resume=True)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    assert {name for name, _, _ in executors.made[-1].log} == {DDP}
    assert files_of(out, SINGLE) == kept


def test_resume_runs_a_failed_cell_again_and_keeps_what_it_had(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    executors.options = {"fails": {(DDP, "steps"): 3}}
    run = run_study(SETTINGS, out)
    assert states(run) == {SINGLE: "complete", DDP: "failed"}
    assert run.cells[DDP].record.error is not None
    run = run_study(SETTINGS, out, resume=True)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    assert run.cells[DDP].record.error is None
    assert timed_per_session(run, DDP)[0] == 2 * BLOCK_STEPS


def test_resume_of_a_complete_study_runs_nothing(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = run_study(SETTINGS, out)
    heard = Heard()
    again = run_study(SETTINGS, out, resume=True, listener=heard)
    assert executors.made[-1].log == []
    assert heard.ahead == [0]
    assert {name: cell.record for name, cell in again.cells.items()} == {
        name: cell.record for name, cell in first.cells.items()
    }


def test_resume_with_other_settings_is_refused(executors: Executors, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_study(SETTINGS, out)
    content = (out / "study.json").read_bytes()
    with pytest.raises(UsageError, match="holds a study with other settings"):
        run_study(SETTINGS.model_copy(update={"seed": 1}), out, resume=True)
    assert (out / "study.json").read_bytes() == content


def test_resume_on_a_machine_that_plans_other_cells_is_refused(
    executors: Executors, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Default world sizes come from the cores: on another machine they are others."""
    settings = SETTINGS.model_copy(update={"world_sizes": None, "strategies": ("ddp",)})
    monkeypatch.setattr(cluster, "usable_cores", as_cores)
    monkeypatch.setattr(cluster, "allowed_cores", lambda: (0, 1))
    run_study(settings, tmp_path / "run")
    monkeypatch.setattr(cluster, "allowed_cores", lambda: (0, 1, 2))
    with pytest.raises(UsageError, match="ddp-w3-b4"):
        run_study(settings, tmp_path / "run", resume=True)
    assert len(load_run(tmp_path / "run").study.sessions) == 0


def test_folders_that_are_refused(executors: Executors, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "work.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for folder in ("file", "file/below", "mine"):
        with pytest.raises(OutputError, match=r"give (another|a folder)"):
            run_study(SETTINGS, tmp_path / folder)
    for folder in ("empty", "mine", "missing"):
        with pytest.raises(UsageError, match=f"--resume was given, and .*{folder} holds no study"):
            run_study(SETTINGS, tmp_path / folder, resume=True)
    assert executors.made == []
    assert not (tmp_path / "missing").exists()
    run_study(SETTINGS, tmp_path / "empty")
    with pytest.raises(UsageError, match="holds a study already; go on with it by --resume"):
        run_study(SETTINGS, tmp_path / "empty")
    assert (tmp_path / "mine" / "work.txt").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_is_refused(executors: Executors, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(OutputError, match=f"cannot write in {tmp_path}"):
            run_study(SETTINGS, tmp_path / "run")
    finally:
        tmp_path.chmod(0o700)


def test_a_client_hears_of_a_study_that_was_stopped(executors: Executors, tmp_path: Path) -> None:
    """Also of the steps of the turn that was broken off."""
    executors.options = {"stops_after": 2 + 4 * 2}
    with pytest.raises(Interrupted):
        run_study(SETTINGS.model_copy(update={"log": ("tensorboard",)}), tmp_path / "run")
    numbers, summary, texts = tensorboard_numbers(tmp_path / "run", DDP)
    steps = load_run(tmp_path / "run").cells[DDP].steps.filter(rank=0)
    assert list(numbers) == steps["step"].to_list()
    assert "interrupted" in texts["state"]
    assert summary["summary/timed_steps"] == steps["timed"].sum()


def test_a_client_that_fails_is_a_warning_of_a_study_that_is_complete(executors: Executors, tmp_path: Path) -> None:
    """Which clients there are may change from session to session."""
    out = tmp_path / "run"
    ctrl_c(executors, out, after=2 + 4 * 2)
    (out / "tensorboard").write_text("in the way")
    run = run_study(SETTINGS.model_copy(update={"log": ("tensorboard",)}), out, resume=True)
    assert states(run) == {SINGLE: "complete", DDP: "complete"}
    [warning] = [warning for warning in run.study.warnings if warning.code == "history-log"]
    assert "the run folder has everything" in warning.message
