"""Made runs that differ in a known way, two of them or several a side, for the tests of comparing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from made_runs import Drift, MadeCell, make_run, steady, usual_cells
from worldsize.analysis.compare.comparison import compare_runs
from worldsize.analysis.compare.sides import read_side
from worldsize.config import CompareSettings
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Quantity
from worldsize.results.files import read_record
from worldsize.results.folder import write_study
from worldsize.results.records import StudyRecord

DDP = "ddp-w2-b32"
SINGLE = "single-w1-b32"


def slowed(cells: Sequence[MadeCell], factors: Mapping[str, float]) -> list[MadeCell]:
    """The same cells, some of them with steps that take so many times as long."""
    return [replace(cell, step_s=cell.step_s * factors.get(cell.id, 1.0)) for cell in cells]


def make_pair(
    folder: Path,
    factors: Mapping[str, float],
    *,
    noise: float = 0.0,
    blocks: int = 8,
    drift: Drift = steady,
    drift_b: Drift | None = None,
) -> tuple[Path, Path]:
    """Two runs of the usual cells; in B, the cells that are named take so many times as long."""
    cells = usual_cells(blocks=blocks, noise=noise)
    a = make_run(folder / "a", cells, drift=drift, seed=1)
    return a, make_run(folder / "b", slowed(cells, factors), drift=drift_b or drift, seed=2)


def make_sides(
    folder: Path,
    factors: Mapping[str, float],
    *,
    runs: int = 3,
    noise: float = 0.01,
    blocks: int = 8,
    drift_b: Drift = steady,
    cells: Sequence[MadeCell] | None = None,
) -> tuple[list[Path], list[Path]]:
    """So many runs of the usual cells on either side; in B, the cells that are named take so many times as long."""
    kept = usual_cells(blocks=blocks, noise=noise) if cells is None else cells
    a = [make_run(folder / f"a{k}", kept, seed=2 * k) for k in range(runs)]
    b = [make_run(folder / f"b{k}", slowed(kept, factors), drift=drift_b, seed=2 * k + 1) for k in range(runs)]
    for k, run in enumerate((*a, *b)):  # two runs are never made in the same second
        change_study(run, lambda study, k=k: setattr(study.provenance, "created", f"2026-01-01T00:00:{k:02}Z"))  # type: ignore[misc]
    return a, b


def compared(a: Path | Sequence[Path], b: Path | Sequence[Path], **settings: Any) -> ComparisonRecord:
    """Compare run folders or baselines, one a side or several."""
    names = [",".join(map(str, [side] if isinstance(side, Path) else side)) for side in (a, b)]
    return compare_runs(read_side(a), read_side(b), CompareSettings(**settings), (names[0], names[1]))


def cell_of(record: ComparisonRecord, cell_id: str = DDP) -> CellComparison:
    """The comparison of one cell."""
    [found] = [cell for cell in record.cells if cell.id == cell_id]
    return found


def quantity_of(cell: CellComparison, name: str) -> Quantity:
    """One quantity of a cell."""
    [found] = [quantity for quantity in cell.quantities if quantity.name == name]
    return found


def change_study(run: Path, change: Callable[[StudyRecord], None]) -> None:
    """Change the record of a study in its folder."""
    record = read_record(StudyRecord, run / "study.json")
    change(record)
    write_study(run, record)
