"""Long steps of a cell: how often they come, what they cost, and whether Python collects garbage in them."""

from dataclasses import dataclass

import polars as pl

from worldsize.analysis.activity import thread_times
from worldsize.analysis.advice.gains import MOSTLY, notable, without
from worldsize.analysis.advice.peers import OWN, SlowRanks
from worldsize.analysis.recurring import NOTABLE, LongSteps, is_its_own, is_long, long_steps
from worldsize.analysis.steps import BLOCK, STEPS, per_step, ratio_over, steps_of_ranks, timed_steps
from worldsize.results.folder import Cell
from worldsize.results.records import CellSummary, Estimate

FAR = 2.0
"""Times the median that long steps take at least, where they are no disturbance though they come irregularly."""

PACED = 0.25
"""Data wait ÷ what other parts of long steps take more, from which on the pace is taken for that of the loaders."""


@dataclass(frozen=True)
class Stall:
    """Long steps at regular distances, for garbage, or far longer than the others on a machine that was as usual."""

    steps: LongSteps
    long_s: float
    """Mean of the long ones."""
    gain: Estimate
    """Step ÷ step without that."""
    collected: Estimate | None
    """Seconds per step that a rank collects garbage, where that is most of it."""


def stall_of(cell: Cell, summary: CellSummary | None) -> Stall | None:
    """The stall of a cell; None without one.

    Not where a strategy with a period exchanges in them. Not where they wait for data, which loaders give in bursts;
    nor where other steps do: then loaders, which go on in the long ones, set the pace, and without these the loop would
    wait for as long as they took.
    """
    found = long_steps(cell, summary) if summary else None
    if found is None or found.long_s is None or found.part == "data_wait_s" or _paced_by_loaders(found):
        return None
    if is_its_own(cell, found):
        return None
    blocks = _blocks(cell, found)
    gain = without(blocks, pl.col("more_s"))
    if gain is None or not notable(ratio_over(blocks, pl.col("more_s"), pl.col("step_s"))):
        return None
    collected = _collected(cell, blocks, found.long_s - found.typical_s)
    own = found.every is not None or collected is not None or _not_the_machine(cell, found.long_s / found.typical_s)
    return Stall(found, found.long_s, gain, collected) if own else None


def _paced_by_loaders(found: LongSteps) -> bool:
    rest_s = found.mean_s - found.typical_s - found.waiting_s
    return found.waiting_s > NOTABLE * found.mean_s and found.waiting_s >= PACED * rest_s


def only_in_long_steps(cell: Cell, slow: SlowRanks, stall: Stall) -> bool:
    """Whether most of what some ranks work longer lies in the long steps of their cell, and not in the others."""
    usual = timed_steps(cell).filter(~is_long(stall.steps.typical_s)).select("session", "step").lazy()
    rows = steps_of_ranks(cell, "rank", *OWN).join(usual, on=["session", "step"], how="semi")
    own_s, among = pl.sum_horizontal(*OWN), pl.col("rank").is_in(slow.ranks)
    left_s = cell.collect(rows.select(own_s.filter(among).mean() - own_s.filter(~among).mean())).item()
    return left_s is not None and left_s <= MOSTLY * slow.more.value


def _not_the_machine(cell: Cell, ratio: float) -> bool:
    """Whether steps that come irregularly are so long, beside a short computation that was as quick as ever.

    Steps beside which it was slow are left out before (method.md §8).
    """
    watched = cell.step_columns("reference_s")["reference_s"].drop_nulls().len() > 0
    return watched and ratio > FAR


def _blocks(cell: Cell, found: LongSteps) -> pl.DataFrame:
    """Per step of each block, what the long steps take more (s)."""
    more = pl.col("world_s") - found.typical_s
    steps = timed_steps(cell).group_by(*BLOCK, maintain_order=True)
    return steps.agg(
        pl.col("world_s").mean().alias("step_s"),
        (more.filter(is_long(found.typical_s)).sum() / pl.len()).alias("more_s"),
        pl.len().alias("steps"),
    )


def _collected(cell: Cell, blocks: pl.DataFrame, longer_s: float) -> Estimate | None:
    """Seconds per step that a rank collects garbage where that is most of what the long steps take more.

    In the step of a block that has most of it, it must be most of the `longer_s` by which a long step exceeds the
    median one: what is collected in each step alike makes none of them long.
    """
    times = thread_times(cell)
    if times is None:
        return None
    most = times.group_by(*BLOCK, maintain_order=True).agg(pl.col("collected_s", "most_collected_s").max())
    both = blocks.join(most, on=BLOCK, maintain_order="left")
    in_one = both.filter(pl.col("more_s") > 0).select(pl.col("most_collected_s").mean()).item()
    found = ratio_over(both, pl.col("collected_s") * STEPS, pl.col("more_s") * STEPS)
    if in_one is None or in_one <= MOSTLY * longer_s or not notable(found, MOSTLY):
        return None
    return per_step(both, pl.col("collected_s"))
