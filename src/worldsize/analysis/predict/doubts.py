"""How far off a forecast may be: by the errors that its run shows, and by how little that knows its own steps (§14)."""

import math
from collections.abc import Iterable

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.calibration import UNKNOWN_DOUBT
from worldsize.analysis.predict.forecast import Target
from worldsize.analysis.predict.model import Model
from worldsize.analysis.scaling import Kind
from worldsize.analysis.statistics import NORMAL_QUANTILE
from worldsize.results.records import Estimate

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


def doubt_of(
    errors: Iterable[float], *, source: float = 0.0, other_link: bool = False, latency_share: float = 0.0
) -> float:
    """How far off forecasts of a run are, by its own held-out errors and those that are usual.

    A standard deviation, as a share of the step (method.md §14). `source` is that of what was measured and the forecast
    follows. Held-out cells have the link of the run and its world sizes, and tell nothing of others: `latency_share` is
    that of latency in a step that has another of them.
    """
    own = [math.log1p(error) for error in errors]
    known = (USUALLY * USUAL_ERROR**2 + sum(error**2 for error in own)) / (USUALLY + len(own))
    return math.sqrt(known + source**2 + OTHER_LINK_ERROR**2 * other_link + (LATENCY_ERROR * latency_share) ** 2)


def of_step(model: Model, target: Target) -> float:
    """Standard error, as a share, of the measured step that a forecast follows."""
    cell = model.reference(target.strategy, target.batch_size)
    return _error_of_step(cell)


def of_speedup(model: Model, target: Target, alone: CellAnalysis | None, kind: Kind) -> float:
    """The same of the measured speed-up; both cells alone tell it where they were not compared."""
    cell = model.reference(target.strategy, target.batch_size)
    for row in model.analysis.scaling:
        if row.cell is cell and row.baseline is alone and row.kind == kind and row.speedup is not None:
            return _error(row.speedup.estimate)
    return math.hypot(_error_of_step(cell), _error_of_step(alone))


def _error_of_step(cell: CellAnalysis | None) -> float:
    return _error(cell.summary.step_s) if cell is not None and cell.summary is not None else 0.0


def _error(estimate: Estimate) -> float:
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return UNKNOWN_DOUBT
    return math.log(estimate.high / estimate.low) / 2 / NORMAL_QUANTILE
