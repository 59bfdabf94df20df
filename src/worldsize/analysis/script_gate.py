"""The gate between scripts of one study: whether a later one is slower than the first, timed in turn (§13)."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.records import Estimate

Outcome = Literal["passed", "failed", "not known"]


@dataclass(frozen=True)
class Gated:
    """One script beside the first, with the same number of workers."""

    old: str
    new: str
    """Ids of their cells."""
    limit: float
    outcome: Outcome
    ratio: Estimate | None
    """Time of a sample, new ÷ old; None where one has no numbers."""
    why: str

    @property
    def text(self) -> str:
        """The line that a person reads; what passed is not proved where the interval reaches beyond the limit."""
        doubt = self.outcome == "passed" and self.ratio is not None and (self.ratio.high or 0.0) > 1 + self.limit
        ended = f"{self.outcome}, but not proved" if doubt else self.outcome
        return f"gate at {100 * self.limit:g} %: {ended}: {self.new} {self.why}"

    def as_json(self) -> dict[str, Any]:
        """The same for a script."""
        return {**asdict(self), "ratio": self.ratio and self.ratio.model_dump()}


def gate(analysis: StudyAnalysis) -> tuple[Gated, ...]:
    """Each later script beside the first at each world size; empty where `fail_above` was not given.

    It fails where it is significantly slower, and by more than the limit as far as was seen; or has no numbers where
    the first has some. It is not known where what was seen is beyond the limit and may be chance, nor by one launch
    of a script: equal ones differ from launch to launch, by more than an interval of one knows.
    """
    settings = analysis.record.asked
    if settings.fail_above is None:
        return ()
    return tuple(_pairs(analysis, settings.strategies, settings.fail_above))


def _pairs(analysis: StudyAnalysis, scripts: tuple[str, ...], limit: float) -> Iterator[Gated]:
    cells = {(cell.strategy, cell.world_size): cell for cell in analysis.cells}
    first, *others = scripts
    for size in dict.fromkeys(cell.world_size for cell in analysis.cells):
        old = cells.get((first, size))
        for name in others:
            new = cells.get((name, size))
            if old is not None and new is not None:
                yield _judged(old, new, limit)


def _judged(old: CellAnalysis, new: CellAnalysis, limit: float) -> Gated:
    if old.summary is None:
        return Gated(old.id, new.id, limit, "not known", None, f"is not compared: {old.id} has no numbers")
    if new.summary is None:
        return Gated(old.id, new.id, limit, "failed", None, f"has no numbers, and {old.id} has some")
    found = new.step_ratio(old).scaled(old.samples_per_step / new.samples_per_step).estimate
    if found.low is None or found.high is None:
        return Gated(old.id, new.id, limit, "not known", found, "was timed in one block only: give more steps or time")
    ends = f" [{percent_text(found.low - 1)}, {percent_text(found.high - 1)}]"
    said = f"takes {percent_text(found.value - 1)}{ends} more time a sample than {old.id}"
    outcome, why = _outcome(found.value, found.low, limit, launches=min(old.launched, new.launched))
    return Gated(old.id, new.id, limit, outcome, found, said + why)


def _outcome(ratio: float, low: float, limit: float, *, launches: int) -> tuple[Outcome, str]:
    if launches == 1:
        return "not known", ", by one launch: give a longer --budget, in which each is launched again"
    if ratio <= 1 + limit:
        return "passed", ""
    if low > 1:
        return "failed", ""
    return "not known", ", which may be chance: give more steps or time"
