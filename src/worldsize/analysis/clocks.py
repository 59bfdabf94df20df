"""Clocks of ranks between the moments at which they were aligned (method.md §3)."""

import polars as pl

from worldsize.results.step_records import MAX_DRIFT

LIFE = ("rank", "session", "launch")
"""One process, and so one clock."""
_LIFE = "_life"
"""Its number: of 1,024 ranks × 1,000 steps, groups by one column take half as long as by three (0.26 s for 0.46)."""
CLOCK = ("start_ns", "clock_offset_ns", "clock_error_ns")
NEEDED = (*LIFE, "block", "step_s", *CLOCK)
"""The columns that `interpolated` reads."""


def interpolated(steps: pl.DataFrame) -> pl.DataFrame:
    """Step records, with offset and error of their clock at the middle of each step (ns).

    They come rank after rank, whole turns in the order of time.

    The first step of a turn has the offset that was measured before it, the last one of several that which was
    measured after it, where that was done; between two of them the clocks drift evenly. The error is the larger one
    of both. After the last one it grows by MAX_DRIFT.
    """
    if not steps.height or (steps["clock_error_ns"] == 0).all():  # one clock, which needs no correction
        return steps
    middle, known = pl.col("_middle_ns"), ("at_ns", "offset_ns", "error_ns")
    knots = pl.when("_begins").then("_knot").otherwise(None), pl.when("_ends").then("_knot").otherwise(None)
    marked = _with_knots(steps.with_columns(pl.struct(LIFE).rle_id().alias(_LIFE))).with_columns(
        # What is known from before a step is its own knot, or the last one of the steps before it.
        pl.coalesce(knots[0], pl.coalesce(*knots).shift(1).forward_fill().over(_LIFE)).alias("_before"),
        pl.coalesce(knots[1], pl.coalesce(*knots).shift(-1).backward_fill().over(_LIFE)).alias("_after"),
    )
    (t0, offset0, error0), (t1, offset1, error1) = (
        tuple(pl.col(side).struct.field(name) for name in known) for side in ("_before", "_after")
    )
    drifted = (offset1 - offset0) * ((middle - t0) / (t1 - t0)).clip(0, 1)
    later = pl.col("_after").is_not_null() & (t1 > t0)
    grown = pl.when(error0 > 0).then((middle - t0).clip(0) * MAX_DRIFT).otherwise(0)
    return marked.with_columns(
        pl.when(later).then(offset0 + drifted.round().cast(pl.Int64)).otherwise(offset0).alias("clock_offset_ns"),
        pl.when(later)
        .then(pl.max_horizontal(error0, error1))
        .otherwise(error0 + grown.ceil().cast(pl.Int64))
        .alias("clock_error_ns"),
    ).select(steps.columns)


def pair_error_ns() -> pl.Expr:
    """How wrong the difference of two ranks' times can be, at most (ns): each of both has its error.

    An expression over the ranks of one step.
    """
    return pl.col("clock_error_ns").sort(descending=True).head(2).sum()


def _with_knots(steps: pl.DataFrame) -> pl.DataFrame:
    """The steps, with the moments of aligning: which of them has one at its start or at its end, when, and what."""
    value = pl.struct("clock_offset_ns", "clock_error_ns")
    first, last = ((pl.col("block") != pl.col("block").shift(by)).fill_null(value=True).over(_LIFE) for by in (1, -1))
    length_ns = (pl.col("step_s") * 1e9).round().cast(pl.Int64)
    changed = (value != value.shift(1)).fill_null(value=True).over(_LIFE)
    return (
        steps.with_columns(first.alias("_first"), (last & changed & ~first).alias("_ends"))
        .with_columns(((pl.col("_first") | changed) & ~pl.col("_ends")).alias("_begins"))
        .with_columns(
            (pl.col("start_ns") + length_ns // 2).alias("_middle_ns"),
            pl.struct(
                (pl.col("start_ns") + pl.when("_ends").then(length_ns).otherwise(0)).alias("at_ns"),
                pl.col("clock_offset_ns").alias("offset_ns"),
                pl.col("clock_error_ns").alias("error_ns"),
            ).alias("_knot"),
        )
    )
