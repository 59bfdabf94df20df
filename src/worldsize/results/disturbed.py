"""Steps beside which the machine gave its cores less than it usually does (method.md §8): they count all the same.

Ranks time a short computation after some of their steps (measure/reference.py). Where it took much longer than usual
before or after a step, something else used the cores: another process, a thread of the training itself, or another
guest of the host. To leave such steps out would favour one worker: N workers meet a slow core N times as often, and
where two cores are slow only while both compute, one worker never meets it.
"""

from collections.abc import Callable

import polars as pl

SLOW = 1.3
"""The computation takes this many times as long as usual where cores are disturbed; a core that two threads share
gives each 0.6 of its rate (1.7 times), and undisturbed ones were seen to differ by 10 %."""
USUAL = 0.25
"""The quantile of a rank's times in a session that is usual: a machine may be disturbed for much of a study."""
TURN = ("session", "launch", "block", "synchronised")


def disturbed_steps(samples: pl.LazyFrame, collect: Callable[[pl.LazyFrame], pl.DataFrame]) -> pl.DataFrame:
    """Return the timed steps of a cell that were disturbed on any rank, a row each: TURN and `step`.

    `samples` are its step records in the order of rank, then of time.
    """
    reference, turn = pl.col("reference_s"), ("rank", *TURN)
    if collect(samples.select(reference.count())).item() == 0:  # as of most kinds of runs; windows take long
        return collect(samples.select(*TURN, "step").head(0))
    # Rolled-back steps are judged by what is usual in training.
    usual = reference.filter("synchronised").quantile(USUAL, interpolation="linear").over("rank", "session")
    longest = pl.max_horizontal(reference.backward_fill(), reference.forward_fill().shift(1))
    slow = samples.filter((longest.over(turn) > SLOW * usual).fill_null(False) & pl.col("timed"))
    return collect(slow.select(*TURN, "step").unique(maintain_order=True))
