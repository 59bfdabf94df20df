"""The two sides of a comparison: the runs of each, part by part, and one cell in all of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from worldsize.analysis.compare.differences import other_work
from worldsize.analysis.compare.over_runs import Sample
from worldsize.analysis.statistics import Floats
from worldsize.errors import UsageError
from worldsize.results.baseline_records import StoredCell, StoredRun

Runs = Sequence[StoredRun]
LEAST, MOST = 1e-100, 1e100
"""Beyond them a number of a run is none: nothing is measured there."""


@dataclass(frozen=True)
class Pair:
    """The same study, or part of an experiment, in the runs of both sides that have it."""

    part: str
    a: list[StoredRun]
    b: list[StoredRun]

    def named(self, cell_id: str) -> str:
        """A cell with its part in front."""
        return f"{self.part}/{cell_id}" if self.part else cell_id


@dataclass(frozen=True)
class CellRuns:
    """One cell in the runs of one side: None where a run did not plan it."""

    runs: list[StoredRun]
    cells: list[StoredCell | None]
    planned: list[StoredCell] = field(init=False)
    measured: list[StoredCell] = field(init=False)
    """Those with numbers."""

    def __post_init__(self) -> None:
        planned = [cell for cell in self.cells if cell is not None]
        object.__setattr__(self, "planned", planned)
        object.__setattr__(self, "measured", [cell for cell in planned if cell.blocks])

    @classmethod
    def of(cls, cell_id: str, runs: Runs) -> "CellRuns":
        """The cell of this name in each run."""
        return cls(list(runs), [_cell(run, cell_id) for run in runs])

    @property
    def measured_runs(self) -> list[StoredRun]:
        """The runs in which it has numbers."""
        return [run for run, cell in zip(self.runs, self.cells, strict=True) if cell is not None and cell.blocks]

    def values(self, value: Callable[[StoredCell], float | None]) -> list[float | None]:
        """A number of the cell for each run; None where there is none."""
        return [value(cell) if cell is not None and cell.blocks else None for cell in self.cells]


def sample(a: Sequence[float | None], b: Sequence[float | None]) -> Sample:
    """Logarithms per run, from numbers that must be above 0, and neither tiny nor endless, to have one."""
    return Sample(_logs(a), _logs(b))


def parts(a: Runs, b: Runs) -> tuple[dict[str, list[StoredRun]], dict[str, list[StoredRun]]]:
    """The parts of an experiment by name, the whole as "", with the runs of either side that have them."""
    return _parts_of(a), _parts_of(b)


def named_runs(path: str, runs: int) -> list[str]:
    """A name for each run of a side, in what is said of it; `path` as it was given."""
    each = path.split(",")
    return each if len(each) == runs else [f"run {place} of {path}" for place in range(1, runs + 1)]


def refuse_unlike(runs: Runs, paths: Sequence[str]) -> None:
    """Raise UsageError if a run is given twice on one side, or if they did not do the same work."""
    for place, run in enumerate(runs):
        if run in runs[:place]:
            raise UsageError(f"{paths[place]} is given twice on one side\nGive each run once: A1,A2 B1,B2")
        if work := other_work(runs[0], run):
            raise UsageError(
                f"{paths[0]} and {paths[place]} are not the same work (other {', other '.join(work)})\n"
                "One side holds runs of the same commit and settings."
            )


def _parts_of(runs: Runs) -> dict[str, list[StoredRun]]:
    found: dict[str, list[StoredRun]] = {}
    for run in runs:
        for name, part in _walk(run):
            found.setdefault(name, []).append(part)
    return found


def _walk(run: StoredRun, name: str = "") -> Iterator[tuple[str, StoredRun]]:
    yield name, run
    for part, inner in run.parts.items():
        yield from _walk(inner, f"{name}/{part}" if name else part)


def _cell(run: StoredRun, cell_id: str) -> StoredCell | None:
    return next((cell for cell in run.cells if cell.id == cell_id), None)


def _logs(values: Sequence[float | None]) -> Floats:
    known = [np.nan if each is None or not LEAST < each < MOST else each for each in values]
    logs: Floats = np.log(np.array(known, dtype=np.float64))
    return logs
