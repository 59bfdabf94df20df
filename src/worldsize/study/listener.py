"""What a study tells while it runs. The commands turn it into a display; the library may ignore it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from worldsize.results.rank_files import first_step, last_step
from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.study.plan import PlannedCell


class Listener(Protocol):
    """Hears of everything that happens in a study, in order."""

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        """The study begins; at most this many steps are ahead, warm-up included, or as many as fit into `left_s`."""

    def starting(self, cell: PlannedCell) -> None:
        """The workers of a cell are being started."""

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """A cell has run this many further steps; the last one that it wrote."""

    def rested(self, record: CellRecord) -> None:
        """A cell has ended a turn, and no turn goes on: what would disturb one may be done now."""

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        """So well is a cell known after this many blocks: half of the 95 % interval, as a share of its value.

        Of its ratio to its baseline, or of its own step where it has none; None before there is an interval. Protocol
        *steps* only, between two turns; `target_interval` of its settings is where it stops. The report may have a
        narrower one (`Dependence.widening`).
        """

    def skipped(self, steps: int) -> None:
        """This many steps will not be run: a cell is precise enough, or has failed."""

    def ended(self, record: CellRecord) -> None:
        """A cell is complete, has failed, or was interrupted; its record is written."""


class Silence:
    """The listener that does nothing."""

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        """Do nothing."""

    def starting(self, cell: PlannedCell) -> None:
        """Do nothing."""

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """Do nothing."""

    def rested(self, record: CellRecord) -> None:
        """Do nothing."""

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        """Do nothing."""

    def skipped(self, steps: int) -> None:
        """Do nothing."""

    def ended(self, record: CellRecord) -> None:
        """Do nothing."""


class Listeners:
    """Several listeners; each hears everything, in this order."""

    def __init__(self, *listeners: Listener) -> None:
        self._all = listeners

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        """Tell all."""
        for listener in self._all:
            listener.planned(cells, steps, left_s)

    def starting(self, cell: PlannedCell) -> None:
        """Tell all."""
        for listener in self._all:
            listener.starting(cell)

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """Tell all."""
        for listener in self._all:
            listener.advanced(cell, steps, last)

    def rested(self, record: CellRecord) -> None:
        """Tell all."""
        for listener in self._all:
            listener.rested(record)

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        """Tell all."""
        for listener in self._all:
            listener.narrowed(cell, half_width, blocks)

    def skipped(self, steps: int) -> None:
        """Tell all."""
        for listener in self._all:
            listener.skipped(steps)

    def ended(self, record: CellRecord) -> None:
        """Tell all."""
        for listener in self._all:
            listener.ended(record)


class Follower:
    """Reads what rank 0 of a cell writes in one turn, now and then, and tells how many steps came in."""

    def __init__(self, file: Path, advanced: Callable[[int, StepRecord | None], None]) -> None:
        self._file, self._advanced = file, advanced
        self._begin = file.stat().st_size if file.exists() else 0
        self._shown = 0

    def look(self) -> None:
        """Tell of what was written since the last look."""
        first, last = first_step(self._file, self._begin), last_step(self._file)
        if first and last and last.step - first.step + 1 > self._shown:
            self._tell(last.step - first.step + 1 - self._shown, last)

    def finish(self, steps: int) -> None:
        """The turn is over, and had this many steps in all."""
        self._tell(steps - self._shown, last_step(self._file))

    def _tell(self, steps: int, last: StepRecord | None) -> None:
        if steps > 0:
            self._shown += steps
            self._advanced(steps, last)
