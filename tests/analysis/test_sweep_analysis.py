"""The knee, the largest batch, and why a sweep ended (method.md §9)."""

from pathlib import Path

import pytest

from made_runs import MadeCell, make_run
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.sweep import BatchSweep, batch_sweeps
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord

MEMORY = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)


def analysed(folder: Path, *cells: MadeCell) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells)))


def sweep_of(folder: Path, *cells: MadeCell, asked: int | None = None, samples: int = 1536) -> BatchSweep:
    [found] = batch_sweeps(analysed(folder, *cells).cells, samples, asked)
    return found


def cell(batch_size: int, rate: float) -> MadeCell:
    """One worker that reaches so many samples/s."""
    return MadeCell("single", 1, batch_size, step_s=batch_size / rate)


def test_the_knee_is_the_smallest_batch_within_five_percent_of_the_best(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 50), cell(32, 94), cell(128, 95.5), cell(512, 100))
    assert found.knee == 128, "32 has 94 % of the best, 128 has 95.5 %"


def test_the_largest_batch_may_be_slower_than_the_best(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 100), cell(32, 90))
    assert (found.knee, found.largest) == (8, 32)


def test_memory_ends_it_where_a_batch_did_not_fit(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 50), cell(32, 60), MadeCell("single", 1, 128, state="failed", error=MEMORY))
    assert (found.ended_by, found.largest, found.too_large) == ("memory", 32, 128)


def test_without_it_the_data_end_it_or_the_wish(tmp_path: Path) -> None:
    assert sweep_of(tmp_path / "a", cell(8, 50)).ended_by == "data"
    assert sweep_of(tmp_path / "b", cell(8, 50), asked=8).ended_by == "asked"


def test_another_failure_is_neither(tmp_path: Path) -> None:
    error = ErrorRecord(kind="ValueError", message="no", rank=0)
    found = sweep_of(tmp_path, cell(8, 50), MadeCell("single", 1, 32, state="failed", error=error))
    assert (found.ended_by, found.largest, found.too_large) == ("failure", 8, None)
    assert found.rows[1].fits is None


def test_the_time_of_an_epoch_is_without_waiting_for_data(tmp_path: Path) -> None:
    """1536 samples in batches of 32 are 48 steps of 0.5 s, of which 2 % wait for data."""
    found = sweep_of(tmp_path, MadeCell("single", 1, 32, step_s=0.5))
    assert found.rows[0].epoch_s == pytest.approx(48 * 0.5 * 0.98)


def test_two_strategies_are_two_sweeps(tmp_path: Path) -> None:
    cells = analysed(tmp_path, cell(8, 50), MadeCell("ddp", 2, 8), MadeCell("ddp", 2, 32)).cells
    assert [(s.strategy, s.world_size, len(s.rows)) for s in batch_sweeps(cells, 1536, None)] == [
        ("single", 1, 1),
        ("ddp", 2, 2),
    ]
