"""The timed steps of a cell, all ranks of each together, and block by block.

Most of the analysis begins with them (method.md §2, §8); intervals of shares and of times are made of blocks.
"""

import polars as pl

from worldsize.analysis.once import once_per_cell
from worldsize.analysis.parts import with_parts
from worldsize.analysis.statistics import mean_estimate
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellRecord, Estimate
from worldsize.results.world_step import world_step_s
from worldsize.traits import traits_of

COLUMNS = ("step_s", *PARTS, "comm_s", "overlapped_s")
COMPUTE = pl.col("forward_s") + pl.col("backward_s") + pl.col("optimizer_s")
MAX = {
    "step_most_s": pl.col("step_s"),
    "data_wait_most_s": pl.col("data_wait_s"),
    "copy_most_s": pl.col("copy_s"),
    "compute_most_s": COMPUTE,
    "other_most_s": pl.col("other_s"),
    "exposed_most_s": pl.col("exposed_sync_s"),
}
"""Of each step that of the rank which has most of it: a mean over ranks hides what the others wait for."""

BLOCK = ("session", "block")
STEPS = pl.col("steps")
"""Timed steps of a block: blocks by time have more or fewer, and the tables are over steps."""


@once_per_cell
def timed_steps(cell: Cell) -> pl.DataFrame:
    """One row per timed step, in the order of time: session, block, step, launch, world_s, means of COLUMNS, and MAX.

    `world_s` is the time (s) from the end of the step before on its last rank to the end of this one on its own last
    rank, on aligned clocks. So a rank that is late once counts once, and nothing between two steps is left out; the
    first step of a turn or of a launch, which has none before it, and one after the computation that tells of
    disturbances begin when the last rank has begun (method.md §8). Means are over ranks. A step that not every process
    has written, because the run was cut short or its line is damaged, is left out: its slowest rank is unknown.
    """
    trained = with_parts(cell).filter("synchronised")
    most = (value.max().alias(name) for name, value in MAX.items())
    # One offset for a turn: another one at its end would be taken for time that its last step took.
    offset_ns = pl.col("clock_offset_ns").first().over("rank", "session", "block", "launch")
    begin_ns = pl.col("start_ns") + pl.col("offset_ns")
    steps = (
        trained.with_columns(offset_ns.alias("offset_ns"))
        .group_by("session", "block", "step")
        .agg(
            pl.col(*COLUMNS).mean(),
            *most,
            pl.col("launch").first().fill_null(0),
            pl.len().alias("ranks"),
            pl.col("timed").all(),
            pl.col("reference_s").is_not_null().any().alias("paused"),
            begin_ns.max().alias("begin_ns"),
            (begin_ns + (1e9 * pl.col("step_s")).round().cast(pl.Int64)).max().alias("end_ns"),
        )
    )
    seen = pl.col("rank").n_unique()  # of a metered process that drives all workers by itself
    processes = processes_of(cell.record) or cell.collect(trained.select(seen)).item()
    found = cell.collect(steps.filter(pl.col("ranks") == processes).sort("session", "step"))
    # Workers that were started again within an epoch go on in its block: what was lost is no part of a step.
    turn = ("session", "block", "launch")
    follows = (pl.col("step") == pl.col("step").shift(1).over(turn) + 1) & ~pl.col("paused").shift(1).over(turn)
    since_ns = pl.when(follows).then(pl.col("end_ns").shift(1).over(turn)).otherwise("begin_ns")
    columns = found.select(since_ns.alias("since_ns"), "end_ns", "step_most_s").get_columns()
    world_s = world_step_s(*(column.to_numpy() for column in columns))
    found = found.with_columns(pl.Series("world_s", world_s)).filter("timed")
    return found.drop("ranks", "timed", "begin_ns", "end_ns", "paused")


def world_steps(cell: Cell) -> pl.DataFrame:
    """The timed steps of a cell, each ended by its slowest rank: session, block, step and step_s (seconds)."""
    return timed_steps(cell).select("session", "block", "step", pl.col("world_s").alias("step_s"))


def steps_of_ranks(cell: Cell, *columns: str) -> pl.LazyFrame:
    """Some columns of the same steps, one row for each rank, in the order of `Cell.steps`."""
    names = list(dict.fromkeys(("session", "step", *columns)))
    # In another order sums would differ in their last digits from one report to the next.
    counting = timed_steps(cell).select("session", "step").lazy()
    whole = with_parts(cell).select(names).join(counting, on=["session", "step"], how="semi", maintain_order="left")
    return whole.select(names)


def block_means(cell: Cell) -> pl.DataFrame:
    """One row per session and block, in order: `steps`, and means of COLUMNS (s) over ranks and these (method.md §2).

    And means of MAX (s) over timed steps. The same steps count as in the cell's summary: those that every process
    has written, so the mean of their means over ranks is the mean over all.
    """
    steps = timed_steps(cell).group_by(*BLOCK, maintain_order=True)
    return steps.agg(pl.col(*COLUMNS, *MAX).mean(), pl.len().alias("steps")).sort(*BLOCK)


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


def processes_of(record: CellRecord) -> int | None:
    """How many processes a cell has, each with files of its own; None where one may drive several workers unseen.

    A run that was only metered has no placement: N processes send each other something, and of one that sends nothing
    to others it is not known.
    """
    if record.placement is not None:
        return record.placement.processes
    return record.world_size if traits_of(record.strategy, record.own_traits).collectives else None
