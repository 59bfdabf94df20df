"""Sizes of a sweep that are timed again, in turn, so that they can be compared (method.md §9)."""

import time
from collections.abc import Sequence
from typing import Any

from worldsize.analysis.levels import IN_TURN_BLOCK
from worldsize.config import StudySettings
from worldsize.results.records import WarningRecord
from worldsize.study.block_sizes import LEAST_STEPS
from worldsize.study.executor import CellFailed, Executor
from worldsize.study.ledger import Ledger
from worldsize.study.listener import Listener
from worldsize.study.pace import MIN_BLOCKS, Pace
from worldsize.study.plan import PlannedCell
from worldsize.study.schedule import Schedule


class InTurn(Schedule):
    """Blocks of one cell after the other, numbered from `IN_TURN_BLOCK` on; what fails keeps what it had."""

    def __init__(
        self,
        cells: Sequence[PlannedCell],
        settings: StudySettings,
        executor: Executor,
        ledger: Ledger,
        listener: Listener,
    ) -> None:
        assert settings.steps is not None, "only steps are timed in turn"
        steps = max(settings.steps, MIN_BLOCKS * (settings.block_steps or LEAST_STEPS))
        again = settings.model_copy(update={"steps": steps, "evaluate": "never", "profile": False})
        pace = Pace(again, cells, now_s=time.monotonic, plain=True)
        super().__init__(cells, again, executor, ledger, listener, pace=pace)
        self.samples = {cell.id: {} for cell in cells}  # the trials' are not in turn

    def _turn(self, cell: PlannedCell, block: int) -> None:
        super()._turn(cell, IN_TURN_BLOCK + block)
        # Two of the largest do not fit into the memory of a GPU together.
        if cell.placement.device == "cuda":
            self.executor.finish(cell)

    def _guard(self, cell: PlannedCell, work: Any, *args: Any) -> None:
        """A size that fitted, and fails now, has its trial still."""
        try:
            work(cell, *args)
        except CellFailed as failed:
            self.open.discard(cell.id)
            first = failed.error.message.splitlines()[0]
            message = f"{cell.id}: it was not timed again in turn with the others, because: {first}"
            self.ledger.record(cell).warnings.append(WarningRecord(code="not-in-turn", message=message))
            self.executor.finish(cell)
            self.listener.ended(self.ledger.completed(cell, "cap"))
