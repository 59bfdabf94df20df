"""What the schedule knows of an executor: it starts cells, gives them turns and ends them.

There are three: job_executor.py, thread_executor.py and command_executor.py.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from worldsize.ranks.turns import Facts, Reply, Turn
from worldsize.results.records import ErrorRecord
from worldsize.study.plan import PlannedCell


class CellFailed(Exception):  # noqa: N818 - a cell that fails is a row, not the end of the study
    """A cell ended with an error."""

    def __init__(self, error: ErrorRecord) -> None:
        super().__init__(error.message)
        self.error = error


class WorkersBehind(Exception):  # noqa: N818 - they go on from where they are
    """Workers of a training were started again, and have only the steps of their checkpoint behind them."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class Executor(Protocol):
    """Starts cells, gives them turns, ends them. The scheduler knows no more than this."""

    def launch(self, cells: Sequence[PlannedCell]) -> None:
        """Start cells side by side that are about to be asked for; one that is not started here is when it is."""

    def take(self, cell: PlannedCell, turn: Turn, idle: Callable[[], None]) -> list[Reply]:
        """Let a cell do one turn; the replies of its ranks. Starts the cell first if it is not alive.

        Raises CellFailed; the cell is then gone.
        """

    def facts(self, cell: PlannedCell) -> list[Facts]:
        """What the ranks of a cell said when they were started; starts it if it is not alive."""

    def alive(self, cell: PlannedCell) -> bool:
        """Whether the cell's workers run at the moment."""

    def finish(self, cell: PlannedCell) -> None:
        """End a cell."""

    def close(self) -> None:
        """End everything."""
