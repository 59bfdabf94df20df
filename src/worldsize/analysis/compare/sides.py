"""The two sides of a comparison: the runs of each, part by part, and one cell in all of them.

A run is read from a folder or from a stored baseline, and becomes what two runs are compared by.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from worldsize.analysis.cells import CellAnalysis, absent_cell, reason_of, unreadable_cell
from worldsize.analysis.compare.differences import other_work
from worldsize.analysis.compare.over_runs import Sample
from worldsize.analysis.lost_samples import check_samples
from worldsize.analysis.parts import with_parts
from worldsize.analysis.statistics import Floats
from worldsize.analysis.steps import COMPUTE, world_steps
from worldsize.analysis.summary import summarise
from worldsize.config.training import micro_batches
from worldsize.errors import OutputError, UsageError
from worldsize.results.baseline_records import HOW, StoredBlock, StoredCell, StoredRun, read_baseline
from worldsize.results.folder import Cell, Run, load_run
from worldsize.results.imported import with_imported
from worldsize.results.records import CellSummary

TURN = ("session", "block")
Runs = Sequence[StoredRun]
MIN, MAX = 1e-100, 1e100
"""Beyond them a number of a run is none: nothing is measured there."""
OTHER_BATCH = 0.05
"""By how much the samples of a mean step may differ from run to run: they do in a loop whose batches vary."""


def read_snapshot(path: Path) -> StoredRun:
    """A run folder or a stored baseline, whichever is there; raise OutputError for neither."""
    if path.is_dir():
        return snapshot(load_run(path))
    if not path.exists():
        raise OutputError(f"{path} does not exist: give a run folder or a stored baseline\n{HOW}")
    return read_baseline(path)


def paths_of(side: Path | str | Sequence[Path | str]) -> list[Path]:
    """The paths of a side: one, several separated by commas, or a sequence; a path may have a comma in its name.

    Raises UsageError for an empty one.
    """
    if not isinstance(side, str | Path):
        return [path for each in side for path in paths_of(each)]
    text = str(side)
    words = [text] if "," not in text or Path(text).exists() else [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(
            f"'{text}' names an empty path: give run folders or baselines, several separated by commas: A1,A2"
        )
    return [Path(word) for word in words]


def read_side(side: Path | str | Sequence[Path | str]) -> list[StoredRun]:
    """All runs of a side, those of a baseline of several included; raise as `paths_of` and `read_snapshot` do."""
    runs = [run for path in paths_of(side) for run in read_snapshot(path).all_runs]
    if not runs:
        raise UsageError("no run was given: give run folders or stored baselines")
    return runs


def snapshot(run: Run) -> StoredRun:
    """What is kept of a run; cells without numbers keep their place and their reason."""
    study = run.study
    code = with_imported(study.provenance.user_code, run.folder)
    return StoredRun(
        name=study.name,
        settings=study.settings,
        provenance=study.provenance.model_copy(update={"user_code": code}),
        sessions=study.sessions,
        data=study.data,
        model=study.model,
        cells=[_seen(run, name) for name in study.plan],
        parts={name: snapshot(part) for name, part in run.parts.items()},
        unread_parts=[name for name in run.unread if name.startswith("parts/")],
    )


def _seen(run: Run, name: str) -> StoredCell:
    accumulate = run.study.asked.accumulate
    if name in run.unread:
        return _without_numbers(unreadable_cell(name, run.unread[name], accumulate))
    if name not in run.cells:
        return _without_numbers(absent_cell(name, accumulate))
    try:
        return _stored_cell(run.cells[name])
    except OutputError as error:
        return _without_numbers(unreadable_cell(name, str(error), accumulate))


def _without_numbers(absent: CellAnalysis) -> StoredCell:
    return StoredCell(
        id=absent.id,
        strategy=absent.strategy,
        world_size=absent.world_size,
        batch_size=absent.batch_size,
        accumulate=absent.accumulate,
        label=absent.label,
        state=absent.state,
        reason=absent.reason,
    )


def _stored_cell(cell: Cell) -> StoredCell:
    """A cell that was started. A failed one gets no numbers: its steps may be unlike."""
    check_samples(cell)
    record = cell.record
    summary = None if record.state == "failed" else summarise(cell)
    last = record.evaluations[-1] if record.evaluations else None
    return StoredCell(
        id=record.id,
        strategy=record.strategy,
        world_size=record.world_size,
        batch_size=record.batch_size,
        accumulate=micro_batches(record.settings),
        label=record.label,
        state=record.state,
        reason=reason_of(record, has_numbers=summary is not None),
        placement=record.placement,
        summary=summary,
        peak_memory_bytes=record.peak_memory_bytes,
        test_loss=last.test_loss if last else None,
        test_accuracy=last.test_accuracy if last else None,
        blocks=[] if summary is None else _blocks(cell, summary),
    )


def _blocks(cell: Cell, summary: CellSummary) -> list[StoredBlock]:
    """One per turn, in the order of time: means of the world's steps and of the parts (method.md §8)."""
    slowest = world_steps(cell)
    seen = pl.col("exposed_sync_s").mean() if summary.comm_s is not None else pl.lit(None, dtype=pl.Float64)
    parts = cell.collect(
        with_parts(cell)
        .join(slowest.lazy(), on=["session", "step"], how="semi")
        .group_by(TURN)
        .agg(
            pl.col("data_wait_s").mean(),
            COMPUTE.mean().alias("compute_s"),
            seen.alias("exposed_sync_s"),
        )
    )
    times = slowest.group_by(TURN).agg(pl.len().alias("steps"), pl.col("step_s").mean())
    rows = times.join(parts, on=TURN).join(reference_means(cell), on=TURN, how="left").sort(TURN).iter_rows(named=True)
    return [StoredBlock(**row) for row in rows]


def reference_means(cell: Cell) -> pl.DataFrame:
    """One row per turn with the mean of the short computation before and after the steps that count (`reference_s`).

    In seconds, each time on its slowest rank; turns without any are absent.
    """
    follows = pl.col("timed").shift(-1).over("rank", *TURN).fill_null(value=False)
    beside = cell.scan_steps().filter((pl.col("timed") | follows) & pl.col("reference_s").is_not_null())
    slowest = beside.group_by(*TURN, "step").agg(pl.col("reference_s").max())
    return cell.collect(slowest.group_by(TURN).agg(pl.col("reference_s").mean()))


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


def refuse_shared(a: Runs, b: Runs, paths_of_b: Sequence[str]) -> None:
    """Raise UsageError if a run stands on both sides of a gate, from whatever file: it is no slower than itself."""
    if shared := [path for run, path in zip(b, paths_of_b, strict=True) if run in a]:
        raise UsageError(f"{shared[0]} is given on both sides of a gate\nGive each run once: A1,A2 B1,B2")


def has_other_batch(a: "CellRuns", b: "CellRuns") -> bool:
    """Whether a step holds another number of samples in some run, so that it is other work."""
    cells = [*a.measured, *b.measured]
    if len({cell.global_batch for cell in cells}) < 2:
        return False
    samples = [cell.samples_a_step for cell in cells]
    return max(samples) > (1 + OTHER_BATCH) * min(samples)


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
    known = [np.nan if each is None or not MIN < each < MAX else each for each in values]
    logs: Floats = np.log(np.array(known, dtype=np.float64))
    return logs
