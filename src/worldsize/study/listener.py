"""What a study tells while it runs. The commands turn it into a display; the library may ignore it."""

from collections.abc import Sequence
from typing import Protocol

from worldsize.results.records import CellRecord, StepRecord
from worldsize.study.plan import PlannedCell


class Listener(Protocol):
    """Hears of everything that happens in a study, in order."""

    def planned(self, cells: Sequence[PlannedCell], steps: int) -> None:
        """The study begins; at most this many steps are ahead, warm-up included."""

    def starting(self, cell: PlannedCell) -> None:
        """The workers of a cell are being started."""

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """A cell has run this many further steps; the last one that it wrote."""

    def skipped(self, steps: int) -> None:
        """This many steps will not be run: a cell is precise enough, or has failed."""

    def ended(self, record: CellRecord) -> None:
        """A cell is complete, has failed, or was interrupted; its record is written."""


class Silence:
    """The listener that does nothing."""

    def planned(self, cells: Sequence[PlannedCell], steps: int) -> None:
        """Do nothing."""

    def starting(self, cell: PlannedCell) -> None:
        """Do nothing."""

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """Do nothing."""

    def skipped(self, steps: int) -> None:
        """Do nothing."""

    def ended(self, record: CellRecord) -> None:
        """Do nothing."""
