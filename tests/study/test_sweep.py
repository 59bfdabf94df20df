"""A batch grows until memory or the data ends, and bisection finds the largest that fits (method.md §9)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fake_cells import FakeExecutor, findings, planned
from heard import Heard
from made_runs import provenance
from worldsize.analysis.levels import IN_TURN_BLOCK
from worldsize.analysis.study import analyse
from worldsize.config import StudySettings
from worldsize.results.folder import Run, load_run, write_study
from worldsize.results.records import StudyRecord
from worldsize.study.ledger import Ledger
from worldsize.study.plan import PlannedCell
from worldsize.study.sweep import Sweep, TrialError

SWEEP: dict[str, Any] = {"sweep": True, "steps": 6, "block_steps": 2, "warmup_steps": 1, "evaluate": "never"}


def swept(
    folder: Path, *, samples: int = 4096, first: int = 4, world_size: int = 1, session: int = 0, **given: Any
) -> tuple[Run, FakeExecutor]:
    """Run a sweep (or go on with the one in the folder) on a machine that fits `memory_samples`."""
    executor = FakeExecutor(
        folder,
        session,
        given.pop("step_time", lambda cell, now: 0.5),
        memory_samples=given.pop("memory_samples", None),
        fails=given.pop("fails", {}),
    )
    settings = StudySettings(**{**SWEEP, **given})
    found = findings(samples=samples)
    before = {}
    if (folder / "study.json").exists():
        before = load_run(folder).cells
    else:
        record = StudyRecord(
            name="s", settings=settings, plan=[], provenance=provenance(), data=found.data, model=found.model
        )
        write_study(folder, record)
    strategy = "single" if world_size == 1 else "ddp"
    ledger = Ledger(folder, session, before)
    sweep = Sweep(folder, settings, found, executor, ledger, Heard())
    sweep.sweep([planned(strategy, world_size, settings, batch_size=first)])
    return load_run(folder), executor


def batches(run: Run) -> list[int]:
    """In the order in which they were tried."""
    return [run.cells[name].record.batch_size for name in run.study.plan]


def test_the_batch_grows_until_the_data_of_a_worker_end(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, samples=1000)
    assert batches(run) == [4, 16, 64, 256], "1024 would be larger than the data"
    assert all(cell.record.state == "complete" for cell in run.cells.values())


def test_the_data_are_those_of_a_worker_not_of_all(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, samples=1000, world_size=4)
    assert batches(run) == [4, 16, 64], "256 for each of 4 workers would be 1024 samples"


def test_growth_and_the_largest_batch_are_those_asked_for(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, growth=2, largest_batch=20, batch_sizes=(4,))
    assert batches(run) == [4, 8, 16, 20], "the largest is tried though growth does not meet it"


@pytest.mark.parametrize("memory_samples", [5, 37, 63, 64, 100, 255])
def test_bisection_finds_the_largest_exactly(tmp_path: Path, memory_samples: int) -> None:
    run, _ = swept(tmp_path, memory_samples=memory_samples, resolution=0)
    fits = {cell.record.batch_size for cell in run.cells.values() if cell.record.state == "complete"}
    fails = {cell.record.batch_size for cell in run.cells.values() if cell.record.state == "failed"}
    assert max(fits) == memory_samples
    assert min(fails) == memory_samples + 1
    largest = next(c.record for c in run.cells.values() if c.record.batch_size == memory_samples)
    assert largest.summary is not None, "the largest is timed as well"


def test_a_first_batch_that_does_not_fit_is_halved_until_one_does(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, first=64, memory_samples=5, resolution=0)
    fits = [c.record.batch_size for c in run.cells.values() if c.record.state == "complete"]
    assert max(fits) == 5


def test_a_batch_of_the_bisection_has_run_whole_steps(tmp_path: Path) -> None:
    _, executor = swept(tmp_path, memory_samples=8, largest_batch=16, batch_sizes=(4,))
    ops = [op for name, op, _ in executor.log if name == "single-w1-b10"]
    assert ops == ["fit"], "it does not fit: nothing more was tried"
    ops = [op for name, op, _ in executor.log if name == "single-w1-b7"]
    assert ops[:2] == ["fit", "warmup"]


def test_a_coarse_resolution_needs_fewer_trials(tmp_path: Path) -> None:
    fine, _ = swept(tmp_path / "fine", memory_samples=100, resolution=0)
    coarse, _ = swept(tmp_path / "coarse", memory_samples=100, resolution=0.25)
    assert len(coarse.cells) < len(fine.cells)
    fits = max(c.record.batch_size for c in coarse.cells.values() if c.record.state == "complete")
    fails = min(c.record.batch_size for c in coarse.cells.values() if c.record.state == "failed")
    assert fits <= 100 < fails
    assert fails - fits <= 0.25 * fits


def test_each_trial_has_processes_of_its_own(tmp_path: Path) -> None:
    run, executor = swept(tmp_path, memory_samples=20)
    assert set(executor.ended) == set(run.study.plan)
    assert not any(executor.alive(planned("single", 1, StudySettings(**SWEEP), batch_size=b)) for b in batches(run))


def test_no_step_is_rolled_back_where_memory_is_measured(tmp_path: Path) -> None:
    _, executor = swept(tmp_path, largest_batch=16, world_size=2, batch_sizes=(4,))
    assert {op for _, op, _ in executor.log} == {"fit", "warmup", "steps"}


def test_a_batch_that_does_not_fit_is_a_row_with_rank_and_reason(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, memory_samples=10, world_size=2)
    record = run.cells["ddp-w2-b16"].record
    assert record.error is not None
    assert (record.error.kind, record.error.rank) == ("OutOfMemory", 1)
    assert "can't allocate memory" in record.error.message


def test_another_failure_says_nothing_of_the_batch_and_ends_the_sweep(tmp_path: Path) -> None:
    with pytest.raises(TrialError, match="single-w1-b16: ValueError: told to fail"):
        swept(tmp_path, fails={("single-w1-b16", "steps"): 1})
    run = load_run(tmp_path)
    assert run.cells["single-w1-b4"].record.state == "complete", "what was measured is kept"


def test_a_resumed_sweep_runs_only_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TrialError):
        swept(tmp_path, memory_samples=100, fails={("single-w1-b64", "steps"): 1})
    run, executor = swept(tmp_path, memory_samples=100, session=1)
    tried = {name for name, _, _ in executor.log}
    assert "single-w1-b4" not in tried
    assert "single-w1-b64" in tried
    assert max(c.record.batch_size for c in run.cells.values() if c.record.state == "complete") >= 96


def saturating(cell: PlannedCell, now_s: float) -> float:
    """A device that is busy from b = 256 on, the true knee, on a machine that gets slower by 1 % every 4 s."""
    b = cell.settings.batch_size
    rate = {4: 20.0, 16: 50.0, 64: 92.0}.get(b, 100.0)
    return b / rate * (1 + now_s / 400)


def test_the_sizes_near_the_best_are_timed_again_in_turn_and_find_the_true_knee(tmp_path: Path) -> None:
    """By the trials 64 is within 5 % of the best: it was timed while the machine was faster."""
    run, executor = swept(tmp_path, samples=4096, step_time=saturating)
    [found] = analyse(run).sweeps
    trials = {}
    for row in found.rows:
        times = [np.median(each) for key, each in row.cell.blocks.items() if key[1] < IN_TURN_BLOCK]
        trials[row.cell.batch_size] = row.cell.batch_size / float(np.median(times))
    assert min(b for b, rate in trials.items() if rate >= 0.95 * max(trials.values())) == 64
    assert (found.knee, found.in_turn) == (256, True)
    # Five blocks in turn do not rule out 64, where blocks may depend on each other strongly (method.md §8).
    assert found.knee_low in (64, 256)
    assert found.knee_high == 256
    again = [(name, block) for name, op, block in executor.log if op == "steps" and block >= IN_TURN_BLOCK]
    tops = ["single-w1-b16", "single-w1-b64", "single-w1-b256"]
    rounds = [sorted(name for name, _ in again[at : at + len(tops)]) for at in range(0, len(again), len(tops))]
    assert rounds == [sorted(tops)] * (len(again) // 3), "one block of each in each round"
    assert len(again) // 3 >= 5


def test_a_size_that_fails_in_turn_keeps_its_trial(tmp_path: Path) -> None:
    fails = {("single-w1-b256", "steps"): 5}  # its trial has three blocks
    run, _ = swept(tmp_path, samples=1000, fails=fails)
    record = run.cells["single-w1-b256"].record
    assert (record.state, record.error) == ("complete", None)
    assert record.summary is not None
    assert "not-in-turn" in {warning.code for warning in record.warnings}


def test_a_resumed_sweep_does_not_time_in_turn_twice(tmp_path: Path) -> None:
    swept(tmp_path, samples=1000)
    _, executor = swept(tmp_path, samples=1000, session=1)
    assert executor.log == []
