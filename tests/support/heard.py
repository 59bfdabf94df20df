"""A listener that keeps what a study tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.study.plan import PlannedCell


@dataclass
class Heard:
    """All that was told, by kind."""

    ahead: list[int] = field(default_factory=list)
    started: list[str] = field(default_factory=list)
    advances: list[tuple[str, int]] = field(default_factory=list)
    rests: list[str] = field(default_factory=list)
    widths: list[tuple[str, float | None, int]] = field(default_factory=list)
    """(cell, half width of its interval, blocks behind it)."""
    skips: list[int] = field(default_factory=list)
    records: list[CellRecord] = field(default_factory=list)

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        self.ahead.append(steps)

    def starting(self, cell: PlannedCell) -> None:
        self.started.append(cell.id)

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        self.advances.append((cell.id, steps))

    def rested(self, record: CellRecord) -> None:
        self.rests.append(record.id)

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        self.widths.append((cell.id, half_width, blocks))

    def skipped(self, steps: int) -> None:
        self.skips.append(steps)

    def ended(self, record: CellRecord) -> None:
        self.records.append(record.model_copy(deep=True))

    @property
    def endings(self) -> dict[str, str | None]:
        """Cell → what ended it, or its state if nothing did."""
        return {record.id: record.ended_by or record.state for record in self.records}

    def steps(self, cell_id: str) -> int:
        """How many steps of a cell were told."""
        return sum(steps for name, steps in self.advances if name == cell_id)
