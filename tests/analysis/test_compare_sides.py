"""What a side of several runs is: same work, each run once; which ratio is judged by, and what one run cannot know."""

from pathlib import Path

import pytest

from made_pairs import DDP, SINGLE, cell_of, change_study, compared, make_pair, make_sides
from made_runs import make_run, usual_cells
from worldsize.analysis.compare.sides import read_side
from worldsize.errors import UsageError
from worldsize.results.comparison_records import Change
from worldsize.results.records import StudyRecord


def changes_of(record: list[Change]) -> set[tuple[str, str, str]]:
    return {(change.what, change.old, change.new) for change in record}


def other_model(study: StudyRecord) -> None:
    study.training[2].parameters += 1


def test_the_ratio_that_differs_less_from_run_to_run_is_judged_by(tmp_path: Path) -> None:
    """Runs on a machine that is fast one day and slow the next: what all cells have in common cancels."""
    cells = usual_cells(noise=0.01)
    days = [1.0, 1.2, 0.9, 1.1, 0.95, 1.15]
    runs = [make_run(tmp_path / f"{k}", cells, drift=lambda _, k=k: days[k], seed=k) for k in range(6)]  # type: ignore[misc]
    record = compared(runs[:3], runs[3:])
    assert {cell.judged_by for cell in record.cells if cell.id != SINGLE} == {"relative"}
    steady = compared(*make_sides(tmp_path / "steady", {}))
    assert {cell.judged_by for cell in steady.cells} == {"plain"}, "the noise of the baseline cell is left out"
    assert {cell.verdict for each in (record, steady) for cell in each.cells} == {"indistinguishable"}


def test_one_run_a_side_calls_nothing_a_change(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {DDP: 1.5}))
    cell = cell_of(record)
    assert cell.verdict == "not known"
    assert cell.plain is not None
    assert cell.plain.value == pytest.approx(1.5)
    assert {quantity.direction for quantity in cell.quantities} <= {"not known", "same", None}
    assert "6 not known, for want of runs." in record.verdict
    assert f"Largest difference: {DDP}, step time × 1.5" in record.verdict
    assert "One run on a side" in record.caveats[0]


def test_a_side_is_runs_of_the_same_work_each_once(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {}, runs=2)
    with pytest.raises(UsageError, match="is given twice on one side"):
        compared([a[0], a[0]], b)
    change_study(a[1], other_model)
    with pytest.raises(UsageError, match="are not the same work"):
        compared(a, b)
    with pytest.raises(UsageError, match="names an empty path"):
        read_side(f"{a[0]},")


def test_what_differs_within_a_side_is_no_change_between_them_but_said(tmp_path: Path) -> None:
    a, b = make_sides(tmp_path, {}, runs=2)
    change_study(a[1], lambda study: setattr(study.provenance, "torch_version", "3"))
    for run, commit in zip(b, ("one", "two"), strict=True):
        change_study(run, lambda study, commit=commit: setattr(study.provenance, "commit", commit))  # type: ignore[misc]
    record = compared(a, b)
    assert changes_of(record.changes) == {("commit of worldsize", "0123456789abcdef", "one / two")}
    assert "The runs of A differ among themselves: torch." in record.caveats
    assert "The runs of B differ among themselves: commit of worldsize." in record.caveats
