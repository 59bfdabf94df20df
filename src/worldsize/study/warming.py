"""The steps with which a cell begins, which are not timed (method.md §8)."""

from collections.abc import Callable, Sequence

from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell

MOST = {False: 64, True: 256}
"""The most steps that use up what was made before the first one, by whether it has become less for certain: by more
than the batches that loaders have in hand."""
FEWEST = {False: 4, True: 16}
"""The fewest at a time: one or two steps do not show whether what lies ready becomes less."""
BURSTS = 5
"""The fewest bursts of W loaders at a time. While its cell stands still, each loader ends the batch in its hand.
So a turn of two bursts that finds one ready never waits, if a step is longer than half of the time from one batch to
the next; and it leaves one ready again."""
DRAIN_SHARE = 0.1
"""Of what is left of a budget, at most, for that."""


def warm_up(cell: PlannedCell, pace: Pace, take: Callable[[int], Sequence[float]]) -> list[float]:
    """The times (s) of a cell's untimed first steps; `take` makes so many."""
    times = list(take(pace.warmup_steps(cell)))
    while pace.still_warming(cell, times):
        times.extend(take(1))
    return times + use_up(cell, pace, take, times[-1])


def use_up(
    cell: PlannedCell, pace: Pace, take: Callable[[int], Sequence[float]], step_s: float | None = None
) -> list[float]:
    """The times (s) of untimed steps that use up what a loader has made ahead, as long as it becomes less.

    It may have while everything else began, or in a step that others have held up. A loop that waits for its data would
    be timed without its wait; and for ever, as while its cell stands still each loader ends the batch in its hand: of
    four that make 0.69 batches a step, blocks of one burst use no more up than that.
    """
    times: list[float] = []
    ready = first = pace.sizes.ready(cell)
    loaders = max(1, pace.sizes.loaders(cell))
    before, step_s = ready + 1, step_s or pace.step_s(cell) or 0.0
    while 0 < ready < before:
        falls = first - ready > 1 + loaders
        count = max(FEWEST[falls], ready, BURSTS * loaders)
        too_long = pace.left_s is not None and count * step_s > DRAIN_SHARE * pace.left_s
        if len(times) + count > max(MOST[falls], 2 * BURSTS * loaders) or too_long:
            break
        times.extend(took := take(count))
        before, ready, step_s = ready, pace.sizes.ready(cell), took[-1]
    # W side by side give W at a time: a part of them left over would lie ready at the start of each block.
    if left_over := pace.sizes.ready(cell) % loaders:
        times.extend(take(left_over))
    pace.sizes.tried(cell)
    return times
