"""How far off a forecast is: each measured cell predicted from the others, beside the two formulas (method.md §14)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.baselines import Formulas
from worldsize.analysis.predict.doubts import doubt_of, of_step
from worldsize.analysis.predict.forecast import Predicted, Target, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.forecast_records import HeldOut
from worldsize.results.records import Estimate

STEPS = 100
"""Steps that are simulated of each: enough for a mean, and all cells must be there within a second or two."""


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
    return [_held_out(each, [other.error for other in left if other is not each]) for each in left]


def _left_out(analysis: StudyAnalysis) -> Iterator[_Left]:
    for cell in Model(analysis).several:
        model, target = Model(analysis, {cell.id}), Target.of(cell)
        if cell.summary is None or not model.known(cell.strategy).together:
            continue
        found = predicted(model, target, STEPS)
        if found is not None:
            yield _Left(cell, cell.summary.step_s, model, target, found)


def _held_out(left: _Left, errors: Iterable[float]) -> HeldOut:
    """Its band takes the errors of the other cells."""
    doubt = doubt_of(errors, source=of_step(left.model, left.target))
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
