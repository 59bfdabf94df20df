"""Which steps count: those during which the machine gave its cores what it usually gives them (method.md §8).

Ranks time a short computation after some of their steps (measure/reference.py). Where it took much longer than usual
before or after a step, something outside of the training used the cores. That is decided by this computation alone,
never by how long the step itself took, so what is left is not the quick half of the steps: it is the undisturbed part.
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

SLOW = 1.3
"""The computation takes this many times as long as usual where cores are disturbed; a core that two threads share
gives each 0.6 of its rate (1.7 times), and undisturbed ones were seen to differ by 10 %."""
USUAL = 0.25
"""The quantile of a rank's times that is usual: a machine may be disturbed for most of a study, and still be judged by
what it gives."""
MOST = 0.5
"""Share of the timed steps that may be disturbed; if more are, that is how this machine is, and all of them count."""
TURN = ("session", "launch", "block", "synchronised")

Times = NDArray[np.float64]


def undisturbed_blocks(
    blocks: Sequence[tuple[Times, Times]],
) -> list[Times]:
    """The steps of each block that count, from blocks of (steps, times of the computation after each).

    Steps are in seconds, of shape (steps,); the computation's are of shape (ranks, lead + steps), in the same order,
    and NaN where there was none.
    """
    every = np.concatenate([references for _, references in blocks], axis=1)
    known = ~np.all(np.isnan(every), axis=1)
    if not len(known) or not known.all():
        return [steps for steps, _ in blocks]
    usual = np.nanquantile(every, USUAL, axis=1, keepdims=True)
    slow = [_slow_beside(references / usual)[-len(steps) :] for steps, references in blocks]
    if np.mean(np.concatenate(slow)) > MOST:
        return [steps for steps, _ in blocks]
    return [steps[~disturbed] for (steps, _), disturbed in zip(blocks, slow, strict=True)]


def _slow_beside(relative: Times) -> NDArray[np.bool_]:
    """Whether the computation before or after each step was slow on a rank."""
    frame = pl.DataFrame({str(rank): values for rank, values in enumerate(relative)}).fill_nan(None)
    after = frame.select(pl.all().fill_null(strategy="backward"))
    before = frame.select(pl.all().fill_null(strategy="forward").shift(1))
    worst = pl.concat([after, before.rename(lambda name: f"before {name}")], how="horizontal")
    slow: NDArray[np.bool_] = worst.select(pl.max_horizontal(pl.all()).fill_null(0.0) > SLOW).to_series().to_numpy()
    return slow


def disturbed_steps(samples: pl.LazyFrame, collect: Callable[[pl.LazyFrame], pl.DataFrame]) -> pl.DataFrame:
    """The disturbed steps of a cell, a row each: TURN, `step` and `timed`; no rows where more than MOST are.

    `samples` are its step records in the order of rank, then of time.
    """
    columns = ("rank", *TURN, "step", "timed")
    if collect(samples.select(pl.col("reference_s").count())).item() == 0:
        return pl.DataFrame(schema={name: samples.collect_schema()[name] for name in columns[1:]})
    relative = pl.col("reference_s") / pl.col("reference_s").quantile(USUAL).over("rank", "session")
    turn = ("rank", *TURN)
    after = pl.col("relative").backward_fill().over(turn)
    before = pl.col("relative").forward_fill().shift(1).over(turn)
    rows = collect(samples.select(*columns, relative.alias("relative")))
    slow = pl.max_horizontal(after, before).fill_null(0.0) > SLOW
    steps = rows.with_columns(slow.alias("slow")).group_by(*TURN, "step", maintain_order=True)
    found = steps.agg(pl.col("timed").first(), pl.col("slow").any())
    timed = found.filter("timed")
    if timed["slow"].sum() > MOST * timed.height:
        return found.clear().drop("slow")
    return found.filter("slow").drop("slow")


def without_disturbed(samples: pl.LazyFrame, disturbed: pl.DataFrame) -> pl.LazyFrame:
    """The samples with `timed` false for the disturbed steps, and without those that only serve as half of a pair."""
    if disturbed.is_empty():
        return samples
    marked = disturbed.lazy().select(*TURN, "step", pl.lit(value=True).alias("disturbed"))
    joined = samples.join(marked, on=[*TURN, "step"], how="left", maintain_order="left")
    kept = joined.filter(pl.col("disturbed").is_null() | pl.col("synchronised"))
    return kept.with_columns(pl.col("timed") & pl.col("disturbed").is_null()).drop("disturbed")
