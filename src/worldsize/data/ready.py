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
        self._made = self._taken = 0
        self._timed = 0
        self._used = 0.0

    @property
    def burst(self) -> int:
        """The steps that are fed by what its threads make at once."""
        each = min(1.0, self._made / self._taken) if self._taken else 1.0  # a step may take several items
        return ceil(each * self._feeding.most) * self._feeding.steps_of_item

    def after(self, steps: int, *, timed: bool) -> int:
        """For how many steps it is enough after a turn of so many, whose block was timed or not; they stand still."""
        ready = 0.0
        for level in self._feeding.levels:
            self._taken += level.last * level.taken
            if steps and level.taken:
                each = level.taken / steps  # a queue may hold batches, samples, or batches that feed several steps
                ready += level.after / each
                self._used += timed * level.by_threads * (level.before - level.after) / each
        self._made += steps
        self._timed += timed * steps
        several = self._feeding.steps_of_item > 1 and self._feeding.most > 0  # a DataLoader sorts what came too early
        rest = self._feeding.steps_of_item - self._feeding.steps_since if several else 0  # of what the loop has in hand
        return ceil(ready) + max(0, rest)

    def warnings(self) -> list[WarningRecord]:
        """What a reader of the numbers must know."""
        if self._used <= max(1, self.burst, USED_UP * self._timed):  # each may have one in hand by chance
            return []
        text = (
            f"Of the batches of {self._timed} steps, {self._used:.0f} had been made before these steps began: without "
            "them data wait and steps are longer. Longer warm-up (--warmup-steps) uses them up first."
        )
        return [WarningRecord(code="ready-batches", message=text)]
