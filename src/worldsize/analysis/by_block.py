"""What a cell did block by block: intervals of shares and of seconds per step are made of these (method.md §8)."""

import polars as pl

from worldsize.analysis.statistics import mean_estimate
from worldsize.analysis.steps import COLUMNS, MOST, steps_of_ranks, timed_steps
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

BLOCK = ("session", "block")
STEPS = pl.col("steps")
"""Timed steps of a block: blocks by time have more or fewer, and the tables are over steps."""


def block_means(cell: Cell) -> pl.DataFrame:
    """One row per session and block, in order: `steps`, and means of COLUMNS (s) over ranks and these (method.md §2).

    And means of MOST (s) over timed steps. The same steps count as in the cell's summary: those that every process
    has written, so the mean of their means over ranks is the mean over all.
    """
    steps = timed_steps(cell).group_by(*BLOCK, maintain_order=True)
    return steps.agg(pl.col(*COLUMNS, *MOST).mean(), pl.len().alias("steps")).sort(*BLOCK)


def rank_means(cell: Cell) -> pl.DataFrame:
    """The same for each rank by itself, in the order of session, block and rank."""
    steps = steps_of_ranks(cell, *BLOCK, "rank", *COLUMNS)
    return cell.collect(steps.group_by(*BLOCK, "rank").agg(pl.col(*COLUMNS).mean()).sort(*BLOCK, "rank"))


def mean_over(blocks: pl.DataFrame, value: pl.Expr) -> Estimate | None:
    """Mean of a value over blocks, with its interval; None where no block has it."""
    values = blocks.select(value.cast(pl.Float64).alias("value"))["value"].drop_nulls().drop_nans()
    return mean_estimate(values.to_numpy()) if values.len() else None


def ratio_over(blocks: pl.DataFrame, top: pl.Expr, bottom: pl.Expr) -> Estimate | None:
    """Sum of one value ÷ sum of another over blocks, with its interval; None where no block has both.

    The ratio of totals, as the tables have it, never the mean of ratios; its interval is that of the blocks'
    deviations from it (the ratio estimator: Cochran, Sampling Techniques, 1977, §6.3).
    """
    both = blocks.select(top.cast(pl.Float64).alias("top"), bottom.cast(pl.Float64).alias("bottom")).drop_nulls()
    above, below = both["top"].to_numpy(), both["bottom"].to_numpy()
    if not below.sum():
        return None
    ratio = above.sum() / below.sum()
    return mean_estimate(ratio + (above - ratio * below) / below.mean())


def per_step(blocks: pl.DataFrame, value: pl.Expr) -> Estimate | None:
    """Mean over steps of what is a mean of each block, as the tables have it; None where no block has it."""
    return ratio_over(blocks, value * STEPS, STEPS)
