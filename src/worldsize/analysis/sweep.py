"""The batch sweep: the largest batch that fits, and the smallest that is worth it (method.md §9)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.levels import IN_TURN_BLOCK, levels, ratio, ratio_estimate
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.statistics import Blocks
from worldsize.results.records import Estimate

KNEE = 0.95
"""The knee is the smallest b with at least this share of the best samples/s (method.md §9)."""

TOP = 0.85
"""Share of the best samples/s from which on a size may be the knee, or what it is compared with."""
MAX_IN_TURN = 4

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
    knee_low: int | None = None
    """The smallest b of which it is not excluded that it is within 5 % of the best; None without an interval."""
    knee_high: int | None = None
    """The smallest b of which it is certain."""
    best: int | None = None
    """The b with the most samples/s: of those that were timed in turn, where some were."""
    in_turn: bool = False
    """Whether the sizes among which the knee is were timed in turn."""
    shares: Mapping[int, float] = field(default_factory=dict)
    """Samples/s ÷ those of the best, by b. The knee is the smallest b with at least 95 %."""


class Knee(NamedTuple):
    """The smallest b within 5 % of the best samples/s, and between which b it is (95 % intervals of the ratios)."""

    batch_size: int
    low: int | None
    high: int | None


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
    timed = [row.cell for row in rows if row.cell.summary]
    again = [cell for cell in timed if in_turn(cell.blocks)]
    best, shares = best_of(timed), swept_shares(timed)
    found = _knee(shares)
    return BatchSweep(
        strategy=rows[0].cell.strategy,
        world_size=rows[0].cell.world_size,
        rows=rows,
        ended_by=_ended_by(rows, train_samples, asked),
        largest=max(fitting, default=None),
        too_large=min(too_large, default=None),
        knee=found.batch_size if found else None,
        knee_low=found.low if found else None,
        knee_high=found.high if found else None,
        best=best.batch_size if best else None,
        in_turn=len(again) > 1,
        shares={b: share.value for b, share in shares.items()},
    )


def in_turn(blocks: Blocks) -> Blocks:
    """The blocks that were timed in turn with other sizes."""
    return {key: times for key, times in blocks.items() if key[1] >= IN_TURN_BLOCK}


def rate_of(cell: CellAnalysis) -> float:
    """Samples/s of a timed cell, by the blocks that were timed in turn where it has any."""
    assert cell.summary is not None
    again = in_turn(cell.blocks)
    return cell.global_batch / levels({cell.id: again})[cell.id].value_s if again else cell.summary.samples_per_s.value


def swept_ratio(cell: CellAnalysis, other: CellAnalysis, among: Sequence[CellAnalysis] = ()) -> Estimate:
    """Samples/s of a size of a sweep ÷ those of another one, block by block where they were timed in turn.

    All sizes that were, `among`, tell how far their blocks depend on each other.
    """
    top, bottom = in_turn(other.blocks), in_turn(cell.blocks)
    if top and bottom:
        found = levels({each.id: in_turn(each.blocks) for each in (*among, cell, other)})
        steps = ratio(found[other.id], found[cell.id])
    else:
        # Trials have the same numbers of blocks, but not the same time: nothing of the machine cancels. What was timed
        # long after both trials would only add what the machine did since.
        top = {key: times for key, times in other.blocks.items() if key not in top} or top
        trial = {key: times for key, times in cell.blocks.items() if key not in bottom} or bottom
        bottom = {(-1 - session, block): times for (session, block), times in trial.items()}
        steps = ratio_estimate(top, bottom)
    return steps.scaled(cell.global_batch / other.global_batch).estimate


def top_sizes(rates: Mapping[int, float]) -> list[int]:
    """The sizes to time again in turn: the best, the smallest of those near it, and the next below these; ascending."""
    best = max(rates, key=lambda b: rates[b], default=None)
    if best is None:
        return []
    near = sorted(b for b, rate in rates.items() if rate >= TOP * rates[best])
    below = [b for b in sorted(rates) if b < near[0]][-1:]
    return sorted({best, *[*below, *near][: MAX_IN_TURN - 1]})


def best_of(cells: Sequence[CellAnalysis]) -> CellAnalysis | None:
    """The size with the most samples/s: of those that were timed in turn, where some were."""
    timed = [cell for cell in cells if cell.summary]
    return max([cell for cell in timed if in_turn(cell.blocks)] or timed, key=rate_of, default=None)


def swept_shares(cells: Sequence[CellAnalysis]) -> dict[int, Estimate]:
    """Samples/s of each timed size ÷ those of the best, by b, ascending; the best's own is 1 (method.md §9)."""
    best, one = best_of(cells), Estimate(value=1.0, low=1.0, high=1.0, samples=1)
    if best is None:
        return {}
    timed = sorted((cell for cell in cells if cell.summary), key=lambda cell: cell.batch_size)
    return {cell.batch_size: one if cell is best else swept_ratio(cell, best, timed) for cell in timed}


def knee(cells: Sequence[CellAnalysis]) -> Knee | None:
    """The smallest b within 5 % of the best samples/s, with its interval; None without a timed batch (method.md §9)."""
    return _knee(swept_shares(cells))


def _knee(shares: Mapping[int, Estimate]) -> Knee | None:
    if not shares:
        return None
    found = min(b for b, share in shares.items() if share.value >= KNEE)
    if any(share.low is None for share in shares.values()):
        return Knee(found, None, None)
    low = min(b for b, share in shares.items() if share.high is not None and share.high >= KNEE)
    high = min(b for b, share in shares.items() if share.low is not None and share.low >= KNEE)
    return Knee(found, low, high)


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
    share = train_samples // (rows[0].cell.world_size * rows[0].cell.accumulate)
    return "asked" if asked is not None and asked < share else "data"


def interval_of(sweep: BatchSweep) -> str:
    """Between which sizes the knee is, in words."""
    how = "timed in turn" if sweep.in_turn else "timed one after the other"
    if sweep.knee_low is None or sweep.knee_high is None:
        return f"{how}; too few blocks for an interval"
    if sweep.knee_low == sweep.knee_high:
        return f"{how}; the 95 % interval includes no other size"
    return f"{how}; 95 % interval from {sweep.knee_low:,} to {sweep.knee_high:,}"


def sweep_text(sweep: BatchSweep) -> str:
    """What the sweep found, in words."""
    name = f"{sweep.strategy} with {sweep.world_size} worker{'s' if sweep.world_size > 1 else ''}"
    if sweep.largest is None:
        return f"{name}: no batch fitted."
    ends = {
        "memory": f"b = {sweep.too_large:,} did not" if sweep.too_large else "",
        "data": "the next would exceed the samples that a worker has",
        "asked": "no larger one was asked for",
        "failure": "the next trial failed for another reason, or was not finished",
    }
    said = f"{name}: the largest local batch that fitted is b = {sweep.largest:,}; {ends[sweep.ended_by]}."
    cells = {row.cell.batch_size: row.cell for row in sweep.rows if row.cell.summary}
    if sweep.knee is None or sweep.best is None or len(cells) < 2:
        return said
    rates = {b: number_text(cell.summary.samples_per_s.value) for b, cell in cells.items() if cell.summary}
    best = f"the best, {rates[sweep.best]}, is at b = {sweep.best:,}"
    if in_turn(cells[sweep.best].blocks) and not in_turn(cells[sweep.knee].blocks):
        share = percent_text(sweep.shares[sweep.knee])
        best += f" (timed later as well: by the trials of both the knee has {share} of its samples/s)"
    knee = f"The knee is b = {sweep.knee:,} ({interval_of(sweep)}) with {rates[sweep.knee]} samples/s; {best}."
    if sweep.knee < sweep.largest:
        return f"{said} {knee} A batch above the knee only costs memory."
    fits = sweep.ended_by in ("asked", "failure")
    return f"{said} {knee}{' A larger batch was not timed, and may be faster.' if fits else ''}"
