"""Steps that take longer at regular distances: something that the training does now and then."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.activity import MOSTLY, thread_times
from worldsize.analysis.advice.finding import at_most, cell_name, count_of, time_of
from worldsize.analysis.advice.gains import notable, without
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.recurring import NAMES, LongSteps, is_long, long_steps
from worldsize.analysis.steps import BLOCK, STEPS, per_step, ratio_over, timed_steps
from worldsize.results.folder import Cell
from worldsize.results.records import CellSummary, Estimate


@dataclass(frozen=True)
class Stall:
    """Steps of a cell that surely take longer than the others, and what is known of why."""

    steps: LongSteps
    long_s: float
    """Mean of the long ones."""
    gain: Estimate
    collected: Estimate | None
    """Seconds per step that a rank collects garbage, where that is most of it."""


def stall_of(cell: Cell, summary: CellSummary | None) -> Stall | None:
    """The stall of a cell; None without one that comes at regular distances, or for garbage.

    Not where the long steps wait for data, which loaders give in bursts.
    """
    found = long_steps(cell, summary) if summary else None
    if found is None or found.long_s is None or found.part == "data_wait_s":
        return None
    blocks = _blocks(cell, found)
    gain, collected = without(blocks, pl.col("more_s")), _collected(cell, blocks)
    if gain is None or not notable(ratio_over(blocks, pl.col("more_s"), pl.col("step_s"))):
        return None
    return None if found.every is None and collected is None else Stall(found, found.long_s, gain, collected)


def periodic_stall(seen: Seen) -> Iterator[Candidate]:
    """Some steps take longer, at regular distances or for garbage."""
    for cell in seen.cells:
        stall = stall_of(seen.raw(cell), cell.summary)
        if stall is None:
            continue
        found, collected = stall.steps, stall.collected
        often = f"Every {found.every} steps, one" if found.every else f"{percent_text(found.share)} of the steps"
        takes = "takes" if found.every else "take"
        where = f", most of it in {NAMES[found.part]}" if found.part else ""
        long_ms, typical_ms = (number_text(1e3 * each) for each in (stall.long_s, found.typical_s))
        yield candidate(
            "periodic-stall",
            cell,
            finding=f"{often} of {cell_name(cell)} {takes} {long_ms} ms in place of {typical_ms}{where}.",
            evidence=(
                time_of("Median step", found.typical_s),
                time_of("Mean of the long steps", stall.long_s),
                *([count_of("Steps from one to the next", found.every)] if found.every else []),
                *([time_of("Garbage collection per step, on the rank that has most", collected)] if collected else []),
            ),
            cause=_cause(collected),
            next_step=_next_step(found.every, collected),
            command=None,
            gain=at_most(
                stall.gain, "Step ÷ (step − what the long steps take more); assumes that each takes as the median."
            ),
        )


def _blocks(cell: Cell, found: LongSteps) -> pl.DataFrame:
    """Per step of each block, what the long steps take more (s)."""
    more = pl.col("world_s") - found.typical_s
    steps = timed_steps(cell).group_by(*BLOCK, maintain_order=True)
    return steps.agg(
        pl.col("world_s").mean().alias("step_s"),
        (more.filter(is_long(found.typical_s)).sum() / pl.len()).alias("more_s"),
        pl.len().alias("steps"),
    )


def _collected(cell: Cell, blocks: pl.DataFrame) -> Estimate | None:
    """Seconds per step that a rank collects garbage where that is most of what the long steps take more."""
    times = thread_times(cell)
    if times is None:
        return None
    most = times.group_by(*BLOCK, maintain_order=True).agg(pl.col("collected_s").max())
    both = blocks.join(most, on=BLOCK, maintain_order="left")
    found = ratio_over(both, pl.col("collected_s") * STEPS, pl.col("more_s") * STEPS)
    return per_step(both, pl.col("collected_s")) if notable(found, MOSTLY) else None


def _cause(collected: Estimate | None) -> str:
    if collected is not None:
        return "Python collects garbage: the more objects there are, the longer it takes."
    return "Something that is not done in each step: a checkpoint, an evaluation, logging."


def _next_step(every: int | None, collected: Estimate | None) -> str:
    if collected is not None:
        return "Call gc.freeze() once model and data are built, or gc.disable() and collect between epochs."
    return f"Look at what happens every {every} steps; do it less often, or beside the training."
