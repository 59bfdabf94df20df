"""The steps with which a cell begins, which are not timed (method.md §8)."""

from collections.abc import Callable, Iterable

from worldsize.study.blocks import BURSTS
from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell

MOST = {False: 64, True: 256}
"""The most steps that use up what was made before the first one, by whether it has become less for certain: by more
than the batches that loaders have in hand."""
FEWEST = {False: 4, True: 16}
"""The fewest at a time: one or two steps do not show whether what lies ready becomes less."""
DRAIN_SHARE = 0.1
"""Of what is left of a budget, at most, for that."""


def warm_up(cell: PlannedCell, pace: Pace, take: Callable[[int], Iterable[float]]) -> list[float]:
    """The times (s) of a cell's untimed first steps; `take` makes so many.

    A loader may have made batches ahead while everything else began. They are used up as long as they become fewer: a
    loop that waits for its data would be timed without its wait.
    """
    times = list(take(pace.warmup_steps(cell)))
    while pace.still_warming(cell, times):
        times.extend(take(1))
    ready = first = pace.sizes.ready(cell)
    loaders = max(1, pace.sizes.loaders(cell))
    before = ready + 1
    while 0 < ready < before:
        falls = first - ready > 1 + loaders
        count = max(FEWEST[falls], ready, BURSTS * loaders)
        too_long = pace.left_s is not None and count * times[-1] > DRAIN_SHARE * pace.left_s
        if len(times) + count > max(MOST[falls], 2 * BURSTS * loaders) or too_long:
            break
        times.extend(take(count))
        before, ready = ready, pace.sizes.ready(cell)
    # W side by side give W at a time: a part of them left over would lie ready at the start of each block.
    if left_over := pace.sizes.ready(cell) % loaders:
        times.extend(take(left_over))
    pace.sizes.used_up(cell)
    return times
