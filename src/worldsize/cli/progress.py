"""How far a study is: what its listener heard, added up. Nothing here prints or waits."""

from collections.abc import Sequence
from dataclasses import dataclass

from worldsize.analysis.numbers import number_text
from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.study.plan import PlannedCell


@dataclass
class CellProgress:
    """What is known of a cell that has not ended."""

    cell: PlannedCell
    last: StepRecord | None = None
    """Its last step."""
    half_width: float | None = None
    """Of its 95 % interval, as a share of its value."""
    blocks: int = 0
    fresh: int = 0
    """Steps of the turn that goes on."""
    turns_s: float = 0.0
    """Length of its turns that are over, with the rolled-back steps after them."""
    steps: int = 0
    """Steps that were announced and run in these turns."""

    @property
    def precise(self) -> bool:
        """Whether its interval is narrow enough."""
        return self.half_width is not None and self.half_width <= self.cell.settings.target_interval


class Progress:
    """The sums behind a display of one study, or of one part of an experiment. `now_s` is a clock that only grows."""

    def __init__(
        self,
        cells: Sequence[PlannedCell] = (),
        steps: int = 0,
        now_s: float = 0.0,
        budget_s: float | None = None,
    ) -> None:
        self.cells = len(cells)
        self.ended_cells = 0
        self.steps = steps
        """Steps that are ahead or done; 0 where that is unknown, as in a batch sweep."""
        self.done = 0
        self.open = {cell.id: CellProgress(cell) for cell in cells}
        """The cells that have not ended, in the order of the plan."""
        self.running: CellProgress | None = None
        """The cell whose turn it is, or was last."""
        self.budget_s = budget_s
        """How long the steps may take, where time ends them."""
        self._began_s = self._since_s = self._now_s = now_s

    def starting(self, cell: PlannedCell, now_s: float) -> None:
        """The workers of a cell are started."""
        self._now_s = now_s
        self.running = self._of(cell)

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None, now_s: float) -> None:
        """A cell has run some steps."""
        self._now_s = now_s
        self.running = found = self._of(cell)
        found.last = last
        found.fresh += steps
        self.done += steps
        if last is not None and not last.timed and cell.settings.epochs is None:
            found.fresh, self._since_s = 0, now_s  # warming up belongs to no turn

    def rested(self, cell_id: str, now_s: float) -> None:
        """A turn of a cell is over."""
        self._now_s = now_s
        found = self.open.get(cell_id)
        if found is not None:
            found.turns_s += now_s - self._since_s
            found.steps += found.fresh
            found.fresh, self._since_s = 0, now_s

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        """The interval of a cell is so wide now."""
        found = self._of(cell)
        found.half_width, found.blocks = half_width, blocks

    def skipped(self, steps: int) -> None:
        """Some steps need not be run."""
        if self.steps:
            self.steps = max(self.done, self.steps - steps)

    def ended(self, record: CellRecord, now_s: float) -> None:
        """A cell has ended."""
        self.open.pop(record.id, None)
        self.ended_cells += 1
        self._since_s = self._now_s = now_s

    @property
    def left_s(self) -> float | None:
        """Seconds that the steps ahead take at the pace of the turns so far; None while nothing is known.

        Where only a step was seen, its time without rolled-back steps.
        """
        if self.budget_s is not None:
            return max(0.0, self.budget_s - (self._now_s - self._began_s))
        if not self.steps or self.done >= self.steps:
            return None
        steps = sum(each.steps for each in self.open.values())
        if steps:
            pace_s = sum(each.turns_s for each in self.open.values()) / steps
        elif self.running is not None and self.running.last is not None:
            pace_s = self.running.last.step_s
        else:
            return None
        return (self.steps - self.done) * pace_s

    @property
    def over_s(self) -> float:
        """Seconds since the time for steps was over, where time ends them."""
        return 0.0 if self.budget_s is None else max(0.0, self._now_s - self._began_s - self.budget_s)

    def _of(self, cell: PlannedCell) -> CellProgress:
        return self.open.setdefault(cell.id, CellProgress(cell))


def rate_text(cell: PlannedCell, last: StepRecord | None) -> str:
    """The cell and its last step: steps and samples of all workers per second, loss, accuracy, as far as known."""
    parts = [cell.id]
    if last is not None:
        if last.step_s > 0:
            parts.append(f"{number_text(1 / last.step_s)} steps/s")
            parts.append(f"{number_text(last.samples * cell.placement.processes / last.step_s)} samples/s")
        if last.loss is not None:
            parts.append(f"loss {last.loss:.3f}")
        if last.accuracy is not None:
            parts.append(f"accuracy {last.accuracy:.0%}")
    return "  ".join(parts)
