"""How far off a forecast is: each measured cell predicted from the others, beside the two formulas (method.md §14)."""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.baselines import Formulas
from worldsize.analysis.predict.forecast import Predicted, Target, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.forecast_records import HeldOut
from worldsize.results.records import Estimate

STEPS = 100
"""Steps that are simulated of each: enough for a mean, and all cells must be there within a second or two."""
USUAL_ERROR = 0.025
"""Root mean square of the errors of 48 cells over the link of their run, at a batch and with buckets that it had not
seen: 1.3, 1.5 and 2.4 % in three runs of benchmarks/predict.py."""
OTHER_LINK_ERROR = 0.02
"""What another link adds: 116 errors of six models over links exchanged, in quiet hours, were 2.3 % in all; two whole
sessions of benchmarks/predict.py, a noisy and a quiet one, have 89 and 93 % of their steps in the band by it."""
LATENCY_ERROR = 0.25
"""How far latency is off over another link or in a larger world (standard deviation, as a share of it): in three runs
of benchmarks/predict.py it was off by up to 40 %, where the known run was disturbed; taken, not fitted."""
USUALLY = 4
"""As many cells of a run say as much of its errors as all other runs do: taken, not measured."""


class _Left(NamedTuple):
    """A cell that was left out, and what the others make of it."""

    cell: CellAnalysis
    measured: Estimate
    model: Model
    target: Target
    found: Predicted

    @property
    def error(self) -> float:
        return self.found.step_s / self.measured.value - 1


def held_out(analysis: StudyAnalysis) -> list[HeldOut]:
    """Each cell of several workers that the others tell enough of to predict it."""
    left = list(_left_out(analysis))
    return [_held_out(each, doubt_of(other.error for other in left if other is not each)) for each in left]


def doubt_of(errors: Iterable[float], *, other_link: bool = False, latency_share: float = 0.0) -> float:
    """How far off forecasts of a run are, by its own held-out errors and those that are usual.

    A standard deviation, as a share of the step (method.md §14). Held-out cells have the link of the run and its world
    sizes, and tell nothing of others: `latency_share` is that of latency in a step that has another of them.
    """
    own = [math.log1p(error) for error in errors]
    known = (USUALLY * USUAL_ERROR**2 + sum(error**2 for error in own)) / (USUALLY + len(own))
    return math.sqrt(known + OTHER_LINK_ERROR**2 * other_link + (LATENCY_ERROR * latency_share) ** 2)


def _left_out(analysis: StudyAnalysis) -> Iterator[_Left]:
    for cell in Model(analysis).several:
        model, target = Model(analysis, {cell.id}), Target.of(cell)
        if cell.summary is None or not model.known(cell.strategy).together:
            continue
        found = predicted(model, target, STEPS)
        if found is not None:
            yield _Left(cell, cell.summary.step_s, model, target, found)


def _held_out(left: _Left, doubt: float) -> HeldOut:
    """Its band takes the errors of the other cells."""
    measured_s = left.measured.value
    steps = np.concatenate(list(left.cell.blocks.values()))
    low, high = left.found.band_s(doubt)
    formulas = Formulas(left.model)
    amdahl_s, power_s = formulas.amdahl_s(left.target), formulas.power_s(left.target)
    return HeldOut(
        cell=left.cell.id,
        measured_s=measured_s,
        predicted_s=left.found.step_s,
        error=left.error,
        in_band=float(((steps >= low) & (steps <= high)).mean()),
        amdahl_error=None if amdahl_s is None else amdahl_s / measured_s - 1,
        power_error=None if power_s is None else power_s / measured_s - 1,
    )
