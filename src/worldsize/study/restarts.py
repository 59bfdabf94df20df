"""Train on after a worker has failed: as often as was asked for, each time a warning in the results.

A job that failed is started again as a whole, by a new agent, and reads its last checkpoint. The elastic agent could
start the workers of a job itself (`max_restarts`), and is told not to: they would have to read the same checkpoint,
for what was in their memory is gone, and only the schedule knows which turn comes next from there. A new job has a
new store and new ports, so nothing of the broken group is met again; and a hang, or the end of the agent itself, is
mended in the same way. It costs the start of one more process, which is a few seconds.
"""

from collections.abc import Callable
from itertools import pairwise

from worldsize.results.records import ErrorRecord
from worldsize.study.ledger import Ledger
from worldsize.study.memory_end import OUT_OF_MEMORY
from worldsize.study.plan import PlannedCell

SURE_TO_FAIL_AGAIN = frozenset({"LossNotFiniteError", OUT_OF_MEMORY})
"""The same weights and the same data end in the same way."""


def sure_to_fail_again(error: ErrorRecord) -> bool:
    """Whether another try would only end in the same way: the user's mistake, too little memory, no number."""
    return error.exit_status == 2 or error.kind in SURE_TO_FAIL_AGAIN


Successor = Callable[[PlannedCell, ErrorRecord], PlannedCell | None]


class Restarts:
    """Counts the restarts of each cell of a session."""

    def __init__(self, most: int, ledger: Ledger, fewer: Successor = lambda cell, error: None) -> None:
        self.most = most
        self.fewer = fewer
        """Finds the cell that trains on, with fewer workers, for one that failed for good (study/shrink.py)."""
        self._ledger = ledger
        self._done: dict[str, int] = {}

    def again(self, cell: PlannedCell, error: ErrorRecord) -> bool:
        """Whether a cell that failed is to go on; notes it in its record."""
        done = self._done.get(cell.id, 0)
        if done >= self.most or sure_to_fail_again(error):
            return False
        self._done[cell.id] = done + 1
        self._ledger.restarted(cell, error, done + 1, self.most)
        return True


def pieces(trained: int, epoch: int, steps: int, *, every: int | None) -> list[int]:
    """Steps from one checkpoint to the next, from those that are trained to the end of an epoch of so many `steps`."""
    end, each = (epoch + 1) * steps, every or steps
    edges = [trained, *(edge for edge in range(epoch * steps + each, end, each) if edge > trained), end]
    return [following - edge for edge, following in pairwise(edges)]
