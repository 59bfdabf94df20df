"""Local batches: the knee of a sweep, batches too small for the device, and those worth growing into free memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from worldsize.analysis.advice.finding import (
    Evidence,
    at_most,
    cell_name,
    measured,
    memory_of,
    named,
    ratio_of_two,
    share,
    share_of,
)
from worldsize.analysis.advice.gains import STEP, notable
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, on_one_host
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused, sweep_command, train_command
from worldsize.analysis.numbers import estimate_text, gib_text
from worldsize.analysis.steps import BLOCK, ratio_over
from worldsize.analysis.sweep import KNEE, BatchSweep, interval_of, swept_ratio
from worldsize.config.base import MAX_BATCH
from worldsize.results.records import Estimate

LOW_RATE = 0.25
"""Share of the matrix-multiply rate below which a small batch is the likely reason; large ones reach twice as much."""
FORWARD_BACKWARD = pl.col("forward_s") + pl.col("backward_s")
"""What the floating-point operations are counted in (method.md §12)."""
LINE = (
    "A line through the steps of both batches: what does not grow with b is shared by ever more samples. Assumes that "
    "the line goes on."
)


def batch_knee(seen: Seen) -> Iterator[Candidate]:
    """What a sweep recommends: the smallest batch that is as fast as any."""
    for sweep in seen.analysis.sweeps:
        timed = [row.cell for row in sweep.rows if row.cell.summary]
        knee = next((cell for cell in timed if cell.batch_size == sweep.knee), None)
        if knee is None or len(timed) < 2:
            continue
        first, last = timed[0], timed[-1]
        gain = None if knee is first else rate_ratio(knee, first, in_turn=False)
        beyond = None if knee is last else rate_ratio(last, knee, in_turn=False)
        if not _settled(gain, beyond):
            continue
        yield candidate(
            "batch-knee",
            knee,
            finding=f"{sweep.strategy} gains nothing worth its memory above b = {knee.batch_size:,}, the knee.",
            evidence=_knee_evidence(sweep, knee, (first, gain), (last, beyond)),
            cause="From there on the device is busy all the time; a larger batch only takes longer and more memory.",
            next_step=f"Train with b = {knee.batch_size:,}.",
            command=train_command(seen.settings, knee),
            gain=measured(
                gain,
                "Measured in this sweep; only the batches near the best were timed in turn.",
                of=f" of b = {first.batch_size:,}",
            ),
            everywhere=True,
        )


def rate_ratio(cell: CellAnalysis, other: CellAnalysis, *, in_turn: bool) -> Estimate:
    """Samples/s of a cell ÷ those of another one. Of a sweep only its last blocks are `in_turn`, and that of some."""
    if not in_turn:
        return swept_ratio(cell, other)
    return other.step_ratio(cell).scaled(cell.global_batch / other.global_batch).estimate


def rate_of(cell: CellAnalysis) -> Evidence:
    """The samples/s of a batch, as evidence."""
    assert cell.summary is not None
    found = cell.summary.samples_per_s
    return Evidence(f"Samples/s at b = {cell.batch_size:,}", estimate_text(found), found, "samples/s")


def compared(one: CellAnalysis, other: CellAnalysis, ratio: Estimate) -> Evidence:
    """The ratio of the samples/s of two batches, as evidence."""
    return ratio_of_two(f"Samples/s, b = {one.batch_size:,} ÷ b = {other.batch_size:,}", ratio)


def _settled(gain: Estimate | None, beyond: Estimate | None) -> bool:
    """Whether the knee is significant: it beats the first batch, and the last is faster by no more than it allows."""
    below_is_slower = gain is None or notable(gain, 1)
    return below_is_slower and (beyond is None or (beyond.high is not None and beyond.high < 1 / KNEE))


def _knee_evidence(
    sweep: BatchSweep,
    knee: CellAnalysis,
    first: tuple[CellAnalysis, Estimate | None],
    last: tuple[CellAnalysis, Estimate | None],
) -> Iterator[Evidence]:
    yield rate_of(knee)
    yield Evidence("The knee", interval_of(sweep))
    for cell, ratio in (first, last):
        if ratio is not None:
            yield compared(knee, cell, ratio) if cell is first[0] else compared(cell, knee, ratio)
    for cell in (knee,) if knee is last[0] else (knee, last[0]):
        peak = cell.record.peak_memory_bytes if cell.record else None
        if peak is not None:
            yield memory_of(f"Peak memory at b = {cell.batch_size:,}", peak)


@dataclass(frozen=True)
class Rise:
    """Samples/s that still rise at the largest local batch of a strategy and world size."""

    cell: CellAnalysis
    smaller: CellAnalysis
    """With the next smaller batch."""
    ratio: Estimate
    """Samples/s here ÷ there."""
    gain: Estimate | None
    """Times the samples/s that ever larger batches approach, by a line through both steps; None where unsure."""
    next_batch: int


def rises(seen: Seen) -> Iterator[Rise]:
    """Where the largest batch is faster than the one before it by more than the knee allows (method.md §9)."""
    for sizes in _by_batch(seen).values():
        if len(sizes) < 2:
            continue
        smaller, cell = sizes[-2], sizes[-1]
        if not seen.settings.sweep and not cell.blocks.keys() & smaller.blocks.keys():
            continue  # not timed in turn: the drift between them would be in their ratio
        ratio = rate_ratio(cell, smaller, in_turn=not seen.settings.sweep)
        most = _largest(seen, cell)
        next_batch = min(cell.batch_size * max(2, cell.batch_size // smaller.batch_size), most)
        if notable(ratio, 1) and ratio.value >= 1 / KNEE and next_batch > cell.batch_size:
            yield Rise(cell, smaller, ratio, _limit(seen, cell, smaller), next_batch)


def batch_too_small(seen: Seen) -> Iterator[Candidate]:
    """A batch with which the device has not enough to do."""
    for rise in rises(seen):
        if not _ended_by_itself(seen, rise.cell):
            yield _still_rising(seen, rise)
    for sizes in _by_batch(seen).values():
        cell = sizes[0]
        reached = _of_matmul(seen, cell)
        if len(sizes) == 1 and reached is not None and reached.high is not None and reached.high < LOW_RATE:
            yield from _hardly_busy(seen, cell, reached)


def memory_headroom(seen: Seen) -> Iterator[Candidate]:
    """Memory for twice the batch, where larger batches are faster."""
    for rise in rises(seen):
        cell, limit = rise.cell, _memory_of_each(seen, rise.cell)
        peak = cell.record.peak_memory_bytes if cell.record else None
        if limit is None or peak is None or 2 * peak > limit or _ended_by_itself(seen, cell):
            continue
        yield candidate(
            "memory-headroom",
            cell,
            finding=f"{cell_name(cell)} uses {gib_text(peak)} of the {gib_text(limit)} that a process may have, and "
            "larger batches are faster.",
            evidence=(
                memory_of("Peak memory of a process", peak),
                compared(cell, rise.smaller, rise.ratio),
            ),
            cause="The batch was chosen smaller than the memory allows.",
            **_upward(seen, cell),
            gain=at_most(rise.gain, LINE),
        )


def _upward(seen: Seen, cell: CellAnalysis) -> dict[str, Any]:
    """Next step and command towards larger batches; how far those of the user's own workload go is unknown."""
    if seen.settings.workload is None:
        return {
            "next_step": "Sweep the batch upward, for the largest that fits and the smallest that is worth it (the "
            "knee).",
            "command": sweep_command(seen.settings, cell, largest_batch=None),
        }
    sizes = (cell.batch_size, 2 * cell.batch_size)
    return {
        "next_step": "Time twice the batch beside it.",
        "command": focused(seen.settings, cell, batch_sizes=sizes, global_batch=None),
    }


def _by_batch(seen: Seen) -> dict[tuple[str, int, str], list[CellAnalysis]]:
    """Cells of a strategy and world size by their local batch, ascending."""
    groups: dict[tuple[str, int, str], list[CellAnalysis]] = {}
    for cell in sorted(seen.cells, key=lambda cell: cell.batch_size):
        groups.setdefault((cell.strategy, cell.world_size, cell.label), []).append(cell)
    return groups


def _limit(seen: Seen, cell: CellAnalysis, smaller: CellAnalysis) -> Estimate | None:
    """Time per sample here ÷ the slope of the line through both steps, block by block; None where 1 is not excluded."""
    if seen.settings.sweep:
        return None
    both = seen.blocks(cell).join(seen.blocks(smaller).select(*BLOCK, STEP.alias("smaller_s")), on=BLOCK)
    slope = (STEP - pl.col("smaller_s")) / (cell.batch_size - smaller.batch_size)
    gain = ratio_over(both, STEP / cell.batch_size, slope)
    return gain if notable(gain, 1) else None


def _of_matmul(seen: Seen, cell: CellAnalysis) -> Estimate | None:
    """Floating-point operations of forward and backward per second ÷ the matrix-multiply rate (method.md §12)."""
    model, rate = seen.analysis.record.model, cell.record.matmul_flops_per_s if cell.record else None
    flops = model.flops_per_sample if model else None
    if not flops or not rate:
        return None
    return ratio_over(seen.blocks(cell), pl.lit(flops * cell.batch_size * cell.accumulate / rate), FORWARD_BACKWARD)


def _largest(seen: Seen, cell: CellAnalysis) -> int:
    """The largest local batch that the data has samples for."""
    samples = seen.analysis.record.train_samples
    return MAX_BATCH if samples is None else samples // (cell.world_size * cell.accumulate)


def _ended_by_itself(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether a sweep has found that no larger batch is possible."""
    same = (s for s in seen.analysis.sweeps if (s.strategy, s.world_size) == (cell.strategy, cell.world_size))
    return any(sweep.ended_by in ("memory", "data") for sweep in same)


def _memory_of_each(seen: Seen, cell: CellAnalysis) -> int | None:
    """Memory that each process may use; None where that is not recorded, as for a GPU."""
    placement, host = cell.record.placement if cell.record else None, seen.analysis.record.provenance.host
    if placement is None or placement.device != "cpu":
        return None
    return seen.settings.memory_limit_bytes or host.memory_bytes // on_one_host(cell)


def _still_rising(seen: Seen, rise: Rise) -> Candidate:
    cell, next_batch = rise.cell, rise.next_batch
    upward = sweep_command(seen.settings, cell, largest_batch=None)
    further = focused(seen.settings, cell, batch_sizes=(cell.batch_size, next_batch), global_batch=None)
    return candidate(
        "batch-too-small",
        cell,
        finding=f"{named(cell)} with N = {cell.world_size} still gains from larger batches: b = {cell.batch_size:,} "
        f"has {estimate_text(rise.ratio)} times the samples/s of b = {rise.smaller.batch_size:,}.",
        evidence=(rate_of(rise.smaller), rate_of(cell)),
        cause="A part of each step does not grow with its samples: per-operator work"
        f"{', synchronisation' if cell.world_size > 1 else ''}, the optimizer.",
        next_step=f"Try b = {next_batch:,} (the learning rate may have to follow).",
        command=upward if seen.settings.sweep else further,
        gain=at_most(rise.gain, LINE),
    )


def _hardly_busy(seen: Seen, cell: CellAnalysis, reached: Estimate) -> Iterator[Candidate]:
    most = _largest(seen, cell)
    sizes = [times * cell.batch_size for times in (1, 2, 4) if times * cell.batch_size <= most]
    if len(sizes) < 2:
        return  # the data has no larger batch to try
    larger: dict[str, Any] = {"batch_sizes": tuple(sizes), "global_batch": None}
    placement = cell.record.placement if cell.record else None
    on_cores = placement is None or placement.device == "cpu"
    device = "cores" if on_cores else "GPU" if cell.world_size == 1 else "GPUs"
    yield candidate(
        "batch-too-small",
        cell,
        finding=f"{cell_name(cell)} runs forward and backward at {share(reached)} of the matrix-multiply rate of its "
        f"{device}.",
        evidence=(share_of("Forward and backward, of the matrix-multiply rate", reached), rate_of(cell)),
        cause="With so few samples the operators are too short to keep the device busy (or the model has few large "
        "multiplications).",
        next_step="Time larger batches beside it.",
        command=focused(seen.settings, cell, **larger),
    )
