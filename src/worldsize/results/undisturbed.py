"""Which steps count: those during which the machine gave its cores what it usually gives them (method.md §8).

Ranks time a short computation after some of their steps (measure/reference.py). Where it took much longer than usual
before or after a step, something outside of the training used the cores. That is decided by this computation alone,
never by how long the step itself took, so what is left is not the quick half of the steps: it is the undisturbed part.
The schedule decides with arrays while it goes on, and who reads a run folder with columns: by the same rule.
"""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

SLOW = 1.3
"""The computation takes this many times as long as usual where cores are disturbed; a core that two threads share
gives each 0.6 of its rate (1.7 times), and undisturbed ones were seen to differ by 10 %."""
USUAL = 0.25
"""The quantile of a rank's times in a session that is usual: a machine may be disturbed for much of a study, and is
still judged by what it gives. If it is for more than three quarters, then that is what it gives."""
MIN = 0.25
"""The share of a cell's timed steps in a session that must count. Disturbances of several ranks add up: on a machine
with four studies at once no step of two workers was free of them, and the cell would have had no number. Where fewer
would count, being disturbed is what this machine is like, and all count."""
TURN = ("session", "launch", "block", "synchronised")

Times = NDArray[np.float64]


class Beside:
    """Times of the computation beside the steps of a turn, by rank: the longest before or after each step."""

    def __init__(self, references: Times, steps: int) -> None:
        """`references` are those after each warm-up step and each of `steps`: (ranks, all steps), NaN for none."""
        self.references = references
        after = _filled(references[:, ::-1])[:, ::-1]
        before = np.full_like(references, np.nan)
        before[:, 1:] = _filled(references)[:, :-1]
        self.longest = np.fmax(before, after)[:, references.shape[1] - steps :]

    def disturbed(self, usual: Times) -> NDArray[np.bool_]:
        """Which of the steps were disturbed on a rank whose computation usually takes so long (NaN: not known)."""
        with np.errstate(invalid="ignore"):
            slow = self.longest > SLOW * usual[:, np.newaxis]
        return np.asarray(slow.any(axis=0))


def usual_s(blocks: Sequence[tuple[Times, Beside]]) -> Times:
    """How long the computation usually takes on each rank, from all blocks of a cell in one session.

    NaN, by which nothing is disturbed, where it is not known or too few steps would count.
    """
    references = np.concatenate([beside.references for _, beside in blocks], axis=1)
    known = [each[~np.isnan(each)] for each in references]
    usual = np.array([np.quantile(own, USUAL) if own.size else np.nan for own in known])
    slow = np.concatenate([beside.disturbed(usual) for _, beside in blocks])
    return np.full_like(usual, np.nan) if slow.size and 1 - slow.mean() < MIN else usual


def undisturbed(blocks: Sequence[tuple[Times, Beside]]) -> list[Times]:
    """The steps that count of each block of a cell in one session, from all of its steps and what was beside them."""
    usual = usual_s(blocks)
    return [steps[~beside.disturbed(usual)] for steps, beside in blocks]


def _filled(values: Times) -> Times:
    """Each row with the last value that was known in place of those that are not."""
    known = np.where(np.isnan(values), 0, np.arange(values.shape[1]))
    return np.take_along_axis(values, np.maximum.accumulate(known, axis=1), axis=1)


def disturbed_steps(
    samples: pl.LazyFrame, collect: Callable[[pl.LazyFrame], pl.DataFrame], *, every_counts: bool = False
) -> pl.DataFrame:
    """The disturbed steps of a cell, a row each: TURN, `step`, `timed`, and whether it `counts` all the same.

    `samples` are its step records in the order of rank, then of time. `every_counts`: none is called disturbed.
    """
    columns = (*TURN, "step", "timed")
    if every_counts or collect(samples.select(pl.col("reference_s").count())).item() == 0:
        kinds = {name: samples.collect_schema()[name] for name in columns}
        return pl.DataFrame(schema={**kinds, "counts": pl.Boolean})
    reference, turn = pl.col("reference_s"), ("rank", *TURN)
    # Rolled-back steps are judged by what is usual in training.
    usual = reference.filter("synchronised").quantile(USUAL, interpolation="linear").over("rank", "session")
    longest = pl.max_horizontal(reference.backward_fill(), reference.forward_fill().shift(1))
    slow = (longest.over(turn) > SLOW * usual).fill_null(False)
    rows = collect(samples.select("rank", *columns, slow.alias("slow")))
    steps = rows.group_by(*TURN, "step", maintain_order=True).agg(pl.col("timed").first(), pl.col("slow").any())
    free = (~pl.col("slow")).filter("timed").mean().over("session").fill_null(1.0)
    return steps.with_columns((free < MIN).alias("counts")).filter("slow").drop("slow")


def without_disturbed(samples: pl.LazyFrame, disturbed: pl.DataFrame) -> pl.LazyFrame:
    """The samples with `timed` false for the disturbed steps, and without those that only serve as half of a pair."""
    left_out = disturbed.filter(~pl.col("counts"))
    if left_out.is_empty():
        return samples
    marked = left_out.lazy().select(*TURN, "step", pl.lit(value=True).alias("disturbed"))
    joined = samples.join(marked, on=[*TURN, "step"], how="left", maintain_order="left")
    kept = joined.filter(pl.col("disturbed").is_null() | pl.col("synchronised"))
    return kept.with_columns(pl.col("timed") & pl.col("disturbed").is_null()).drop("disturbed")
