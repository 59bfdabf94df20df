"""What a loader of the user's own has made ahead: how far it reaches, and whether timed steps have used it up."""

from math import ceil

from worldsize.data.feeding_threads import FeedingThreads
from worldsize.results.records import WarningRecord

USED_UP = 0.05
"""Share of the timed steps that were fed from what had been made before; above it that is told."""


class Ready:
    """Looks after each turn at what lies ready in the queues that feed a rank."""

    def __init__(self, feeding: FeedingThreads) -> None:
        self._feeding = feeding
        self._steps = 0
        self._used = 0.0

    def after(self, steps: int, *, timed: bool) -> int:
        """For how many steps it is enough after a turn of so many, whose block was timed or not; they stand still."""
        ready = 0.0
        for level in self._feeding.levels:
            if steps and level.taken:
                each = level.taken / steps  # a queue may hold batches, samples, or batches that feed several steps
                ready += level.after / each
                self._used += timed * (level.before - level.after) / each
        self._steps += timed * steps
        return ceil(ready)

    def warnings(self) -> list[WarningRecord]:
        """What a reader of the numbers must know."""
        if self._used <= max(1, self._feeding.most, USED_UP * self._steps):  # each may have one in hand by chance
            return []
        text = (
            f"Of the batches of {self._steps} steps, {self._used:.0f} had been made before these steps began: without "
            "them data wait and steps are longer. Longer warm-up (--warmup-steps) uses them up first."
        )
        return [WarningRecord(code="ready-batches", message=text)]
