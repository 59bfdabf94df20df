"""The steps with which a cell begins, which are not timed (method.md §8)."""

from collections.abc import Callable, Iterable

from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell

MOST_DRAINED = 64
"""So many batches that were made before the first step are used up at most, before a cell is timed."""
FEWEST = 4
"""At a time, at least: of one or two steps it cannot be seen whether what lies ready becomes less."""
DRAIN_SHARE = 0.1
"""Of what is left of a budget, at most, for that."""


def warm_up(cell: PlannedCell, pace: Pace, take: Callable[[int], Iterable[float]]) -> list[float]:
    """The times (s) of a cell's untimed first steps; `take` makes so many.

    A loader may have made batches ahead while everything else began. They are used up as long as they become fewer: a
    loop that waits for its data would be timed without its wait.
    """
    times: list[float] = []
    count, before = pace.warmup_steps(cell), MOST_DRAINED + 1
    while count:
        times.extend(take(count))
        ready = pace.sizes.ready(cell)
        more = max(FEWEST, ready)
        drains = 0 < ready < before and len(times) + more <= MOST_DRAINED
        if drains and (pace.left_s is None or more * times[-1] <= DRAIN_SHARE * pace.left_s):
            count, before = more, ready
        else:
            count = int(pace.still_warming(cell, times))
    return times
