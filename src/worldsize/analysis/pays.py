"""Whether more workers pay: the first of the three answers of a study, by its own evidence (method.md §6, §8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from scipy.special import stdtrit

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.statistics import LEVEL, includes
from worldsize.results.records import Estimate

EVEN = 0.05
"""Several workers whose gain lies within this of 1, with 95 % confidence, gain too little to act on."""

Workers = Literal["several", "one", "even", "open"]


@dataclass(frozen=True)
class Gain:
    """Samples/s of a cell of several workers ÷ those of one worker."""

    cell: CellAnalysis
    baseline: CellAnalysis
    ratio: Estimate
    at_least: float | None
    """The lower end of its interval, as of one of several that were tried; None without an interval."""


@dataclass(frozen=True)
class Pay:
    """The answer, with the cells that it is read from."""

    workers: Workers
    """`several` are faster, or `one` is, or they are `even`; `open` where the intervals allow more than that."""
    fastest: Gain
    surest: Gain
    """The one with the highest lower end: the fastest may be less well known."""


def pay_of(rows: Sequence[ScalingRow]) -> Pay | None:
    """Return whether several workers are faster than one, by their rows, the fastest first; None if that has no ratio.

    The fastest has an interval that is corrected for having been chosen (scaling.py). Any of the others may be the one
    that only looks surest: the lower end of each misses with a chance of 2.5 % ÷ their number (Bonferroni).
    """
    shown = [row for row in rows if row.speedup is not None]
    if not shown or shown[0] is not rows[0]:
        return None
    gains = [_gain(row, len(shown) if number else 1) for number, row in enumerate(shown)]
    surest = max(gains, key=lambda gain: gain.at_least or 0.0)
    return Pay(_workers(gains[0].ratio, surest), gains[0], surest)


def _gain(row: ScalingRow, tries: int) -> Gain:
    assert row.speedup is not None, "only rows with a speed-up are shown"
    assert row.baseline is not None, "a speed-up has one"
    ratio, low = row.speedup.estimate, row.speedup.estimate.low
    if low is not None and tries > 1:
        freedom, miss = max(1, ratio.samples - 1), (1 - LEVEL) / 2
        further = float(stdtrit(freedom, miss / tries) / stdtrit(freedom, miss))
        low = ratio.value * (low / ratio.value) ** further
    return Gain(row.cell, row.baseline, ratio, low)


def _workers(fastest: Estimate, surest: Gain) -> Workers:
    if _apart(fastest) <= EVEN:
        return "even"
    if (surest.at_least or 0.0) > 1:
        return "several"
    return "open" if includes(fastest, 1) else "one"


def _apart(ratio: Estimate) -> float:
    """How far from 1 a ratio may be, as a share; infinite without an interval."""
    if ratio.low is None or ratio.high is None:
        return float("inf")
    return max(ratio.high, 1 / ratio.low) - 1
