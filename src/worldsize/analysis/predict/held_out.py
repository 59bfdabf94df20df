"""How far off a forecast is: each measured cell predicted from the others, beside the two formulas (method.md §14)."""

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.baselines import Formulas
from worldsize.analysis.predict.forecast import Target, predicted
from worldsize.analysis.predict.model import Model
from worldsize.analysis.study import StudyAnalysis
from worldsize.results.forecast_records import HeldOut

STEPS = 100
"""Steps that are simulated of each: enough for a mean, and all cells must be there within a second or two."""


def held_out(analysis: StudyAnalysis) -> list[HeldOut]:
    """Each cell of several workers that the others tell enough of to predict it."""
    found = (_held_out(analysis, cell) for cell in Model(analysis).several)
    return [each for each in found if each is not None]


def _held_out(analysis: StudyAnalysis, cell: CellAnalysis) -> HeldOut | None:
    model = Model(analysis, {cell.id})
    if cell.summary is None or not model.known(cell.strategy).together:
        return None
    target = Target.of(cell)
    found = predicted(model, target, STEPS)
    if found is None:
        return None
    measured_s = cell.summary.step_s.value
    steps = np.concatenate(list(cell.blocks.values()))
    low, high = found.band_s
    formulas = Formulas(model)
    amdahl_s, power_s = formulas.amdahl_s(target), formulas.power_s(target)
    return HeldOut(
        cell=cell.id,
        measured_s=measured_s,
        predicted_s=found.step_s,
        error=found.step_s / measured_s - 1,
        in_band=float(((steps >= low) & (steps <= high)).mean()),
        amdahl_error=None if amdahl_s is None else amdahl_s / measured_s - 1,
        power_error=None if power_s is None else power_s / measured_s - 1,
    )
