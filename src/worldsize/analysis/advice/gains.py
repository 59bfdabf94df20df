"""Parts of a step, and what would be gained without them, block by block so that each has its interval (method.md §8).

A gain is an upper bound (Amdahl 1967): the step with nothing in place of the part, and all else as it was measured.
What one rank does and the others wait for counts as that rank has it (the columns `…_most_s`): a mean over ranks is no
bound, since the waiting of the others goes with it.
"""

from dataclasses import dataclass
from typing import TypeGuard

import polars as pl

from worldsize.analysis.steps import BLOCK, STEPS, per_step, ratio_over
from worldsize.results.records import Estimate

NOTABLE = 0.05
"""Share of a step below which nothing is spoken of: less is not worth a change of the set-up."""

MOSTLY = 0.5
"""Share from which on one thing is said to be most of another."""

STEP = pl.col("step_s")
EXPOSED = pl.col("exposed_sync_s")
STEP_MOST = pl.col("step_most_s")
"""Of the rank that ends it last: the step that throughput is made of."""
COMPUTE_MOST = pl.col("compute_most_s")
DATA_WAIT_MOST = pl.col("data_wait_most_s")
COPY_MOST = pl.col("copy_most_s")
OTHER_MOST = pl.col("other_most_s")


@dataclass(frozen=True)
class Part:
    """A part of the steps of a cell; means over blocks."""

    seconds: Estimate
    share: Estimate
    """Of the step, 0 to 1."""


def part(blocks: pl.DataFrame, value: pl.Expr, step: pl.Expr = STEP) -> Part | None:
    """A part given in seconds per step; None where no block has it."""
    seconds, share = per_step(blocks, value), ratio_over(blocks, value * STEPS, step * STEPS)
    return None if seconds is None or share is None else Part(seconds, share)


def without(blocks: pl.DataFrame, saved: pl.Expr, step: pl.Expr = STEP) -> Estimate | None:
    """Step ÷ (step − `saved`), with `saved` in seconds per step; None where no block has it."""
    return ratio_over(blocks, step * STEPS, (step - saved) * STEPS)


def more_than(
    blocks: pl.DataFrame, others: pl.DataFrame, value: pl.Expr, step: pl.Expr = STEP
) -> tuple[Estimate, Estimate] | None:
    """Seconds per step that a cell takes more than another one for something, and its gain without them.

    Block by block, so that the drift of the machine is in neither; None where they have no block in common.
    """
    origin = others.select(*BLOCK, value.alias("origin"))
    both = blocks.with_columns(value.alias("own")).join(origin, on=BLOCK)
    more = pl.col("own") - pl.col("origin")
    seconds, gain = per_step(both, more), without(both, more, step)
    return None if seconds is None or gain is None else (seconds, gain)


def ratio_of(blocks: pl.DataFrame, others: pl.DataFrame, value: pl.Expr) -> Estimate | None:
    """Ratio of something between two cells, over the blocks that both have."""
    both = blocks.select(*BLOCK, value.alias("own")).join(others.select(*BLOCK, value.alias("origin")), on=BLOCK)
    return ratio_over(both, pl.col("own"), pl.col("origin"))


def notable(estimate: Estimate | None, least: float = NOTABLE) -> TypeGuard[Estimate]:
    """Whether the whole interval lies above what is worth speaking of; never without an interval."""
    return estimate is not None and estimate.low is not None and estimate.low > least


def at_least(estimate: Estimate | None, least: float) -> TypeGuard[Estimate]:
    """Whether the whole interval is at `least` or above; never without an interval."""
    return estimate is not None and estimate.low is not None and estimate.low >= least
