"""The batch sweep: the largest batch that fits, and the smallest that is worth it (method.md §9)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text

KNEE = 0.95
"""The knee is the smallest b with at least this share of the best samples/s (method.md §9)."""

EndedBy = Literal["memory", "data", "asked", "failure"]


@dataclass(frozen=True)
class SweepRow:
    """One local batch."""

    cell: CellAnalysis
    fits: bool | None
    """None where a trial ended for another reason, or did not end."""
    epoch_s: float | None
    """Time of an epoch over the D training samples without waiting for data: D/B · (step − data wait)."""


@dataclass(frozen=True)
class BatchSweep:
    """All local batches that were tried with one strategy at one world size."""

    strategy: str
    world_size: int
    rows: tuple[SweepRow, ...]
    """Ascending."""
    ended_by: EndedBy
    largest: int | None
    """The largest b that was seen to fit."""
    too_large: int | None
    """The smallest b that did not; None where memory did not end the sweep."""
    knee: int | None


def batch_sweeps(cells: Sequence[CellAnalysis], train_samples: int, asked: int | None) -> list[BatchSweep]:
    """One sweep for each strategy and world size, in the order of the plan.

    `train_samples` is D, `asked` the largest batch that the user wanted, if any.
    """
    groups = dict.fromkeys((cell.strategy, cell.world_size) for cell in cells)
    return [
        _sweep([cell for cell in cells if (cell.strategy, cell.world_size) == group], train_samples, asked)
        for group in groups
    ]


def _sweep(cells: Sequence[CellAnalysis], train_samples: int, asked: int | None) -> BatchSweep:
    rows = tuple(_row(cell, train_samples) for cell in sorted(cells, key=lambda cell: cell.batch_size))
    fitting = [row.cell.batch_size for row in rows if row.fits]
    too_large = [row.cell.batch_size for row in rows if row.fits is False]
    return BatchSweep(
        strategy=rows[0].cell.strategy,
        world_size=rows[0].cell.world_size,
        rows=rows,
        ended_by=_ended_by(rows, train_samples, asked),
        largest=max(fitting, default=None),
        too_large=min(too_large, default=None),
        knee=knee(rows),
    )


def knee(rows: Sequence[SweepRow]) -> int | None:
    """The smallest b within 5 % of the best samples/s; None without a timed batch (method.md §9)."""
    rates = {row.cell.batch_size: row.cell.summary.samples_per_s.value for row in rows if row.cell.summary}
    return min((b for b, rate in rates.items() if rate >= KNEE * max(rates.values())), default=None)


def _row(cell: CellAnalysis, train_samples: int) -> SweepRow:
    error = cell.record.error if cell.record else None
    fits = True if cell.state == "complete" else False if error and error.kind == "OutOfMemory" else None
    if cell.summary is None or cell.breakdown is None:
        return SweepRow(cell, fits, None)
    step_s = cell.summary.step_s.value * (1 - cell.breakdown.shares["data_wait_s"])
    return SweepRow(cell, fits, train_samples / cell.global_batch * step_s)


def _ended_by(rows: Sequence[SweepRow], train_samples: int, asked: int | None) -> EndedBy:
    if any(row.fits is False for row in rows):
        return "memory"
    if any(row.fits is None for row in rows):
        return "failure"
    share = train_samples // rows[0].cell.world_size
    return "asked" if asked is not None and asked < share else "data"


def sweep_text(sweep: BatchSweep) -> str:
    """What the sweep found, in words."""
    name = f"{sweep.strategy} with {sweep.world_size} worker{'s' if sweep.world_size > 1 else ''}"
    if sweep.largest is None:
        return f"{name}: no batch was seen to fit."
    ends = {
        "memory": f"b = {sweep.too_large:,} did not" if sweep.too_large else "",
        "data": "the next would exceed the samples that a worker has",
        "asked": "no larger one was asked for",
        "failure": "the next trial failed for another reason, or was not finished",
    }
    said = f"{name}: the largest local batch that was seen to fit is b = {sweep.largest:,}; {ends[sweep.ended_by]}."
    rates = {row.cell.batch_size: row.cell.summary.samples_per_s.value for row in sweep.rows if row.cell.summary}
    if sweep.knee is None or len(rates) < 2:
        return said
    best = max(rates, key=lambda b: rates[b])
    return (
        f"{said} The knee is b = {sweep.knee:,} with {number_text(rates[sweep.knee])} samples/s; the most, "
        f"{number_text(rates[best])}, has b = {best:,}. A batch above the knee only costs memory."
    )
