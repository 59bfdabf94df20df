"""From a run, in a folder or in a stored baseline, to what two runs are compared by."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from worldsize.analysis.cells import CellAnalysis, absent_cell, reason_of, unreadable_cell
from worldsize.analysis.damage import check_samples
from worldsize.analysis.parts import with_parts
from worldsize.analysis.steps import COMPUTE, world_steps
from worldsize.analysis.summary import summarise
from worldsize.errors import OutputError, UsageError
from worldsize.results.baseline_records import HOW, StoredBlock, StoredCell, StoredRun, read_baseline
from worldsize.results.folder import Cell, Run, load_run
from worldsize.results.records import CellSummary

TURN = ("session", "block")


def read_snapshot(path: Path) -> StoredRun:
    """A run folder or a stored baseline, whichever is there; raise OutputError for neither."""
    if path.is_dir():
        return snapshot(load_run(path))
    if not path.exists():
        raise OutputError(f"{path} does not exist: give a run folder or a stored baseline\n{HOW}")
    return read_baseline(path)


def paths_of(side: Path | str | Sequence[Path | str]) -> list[Path]:
    """The paths of a side: one, several by commas, or a sequence; a name with a comma in it may be a path, too.

    Raises UsageError for an empty one.
    """
    if not isinstance(side, str | Path):
        return [path for each in side for path in paths_of(each)]
    text = str(side)
    words = [text] if "," not in text or Path(text).exists() else [word.strip() for word in text.split(",")]
    if not all(words):
        raise UsageError(f"'{text}' names an empty path: give run folders or baselines, several by commas: A1,A2")
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
    return StoredRun(
        name=study.name,
        settings=study.settings,
        provenance=study.provenance,
        sessions=study.sessions,
        data=study.data,
        model=study.model,
        cells=[_seen(run, name) for name in study.plan],
        parts={name: snapshot(part) for name, part in run.parts.items()},
    )


def _seen(run: Run, name: str) -> StoredCell:
    if name in run.unread:
        return _without_numbers(unreadable_cell(name, run.unread[name]))
    if name not in run.cells:
        return _without_numbers(absent_cell(name))
    try:
        return _cell(run.cells[name])
    except OutputError as error:
        return _without_numbers(unreadable_cell(name, str(error)))


def _without_numbers(absent: CellAnalysis) -> StoredCell:
    return StoredCell(
        id=absent.id,
        strategy=absent.strategy,
        world_size=absent.world_size,
        batch_size=absent.batch_size,
        label=absent.label,
        state=absent.state,
        reason=absent.reason,
    )


def _cell(cell: Cell) -> StoredCell:
    """A cell that was started. A failed one gets no numbers: its steps may be unlike."""
    check_samples(cell)
    record = cell.record
    summary = None if record.state == "failed" else summarise(cell, record.global_batch)
    last = record.evaluations[-1] if record.evaluations else None
    return StoredCell(
        id=record.id,
        strategy=record.strategy,
        world_size=record.world_size,
        batch_size=record.batch_size,
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
    rows = times.join(parts, on=TURN).sort(TURN).iter_rows(named=True)
    return [StoredBlock(**row) for row in rows]
