"""What several runs a side prove: the unit is the run, and all that is looked at shares one chance (method.md §11).

Two runs of the same commit differ by more than their blocks say: memory, cores and neighbours are drawn anew for each.
Only runs tell how much. There are few of them, so their spread is pooled over the cells.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import stdtr, stdtrit

from worldsize.analysis.statistics import LEVEL, Floats
from worldsize.results.comparison_records import RunError
from worldsize.results.records import Estimate

K = TypeVar("K", bound=Hashable)

MIN_RUNS = 2
"""On each side: the spread of one run is not known."""
ALARM = 0.05
"""Chance of any alarm at all in a comparison of equal sides, at most."""
STEP_ALARM = 0.8 * ALARM
"""The part of it that the step times of all cells share; all other quantities share the rest. They are more, but what
they are looked at for is larger than a few percent."""
PROOF = 0.05
"""Chance that a cell which is slower by the limit is said to be proved not to be."""
MAX_LOG = 700.0
MIN_SPREAD = 1e-6
"""Of logarithms: no two runs are more alike than this, or nothing would be left to chance where two happen to be."""

KNOWN = 1e6
"""Degrees of freedom, at most: of a spread that is hardly taken from these runs."""


@dataclass(frozen=True)
class Sample:
    """One quantity of one cell: logarithms, one per run of A and of B; nan for a run without the number."""

    a: Floats
    b: Floats
    left_open: float | None = None
    """What the blocks of a run leave open of its number, as a standard deviation (root mean square over the runs)."""
    of_side: float = 0.0
    """Standard deviation of what all runs of a side have in common by chance, and which no run of it shows."""

    @property
    def runs(self) -> tuple[int, int]:
        """How many runs of either side have the number."""
        return int(np.isfinite(self.a).sum()), int(np.isfinite(self.b).sum())


def contrasts(samples: Mapping[K, Sample]) -> dict[K, tuple[Estimate, RunError]]:
    """Ratios B ÷ A of one quantity of several cells with 95 % intervals; all samples list the same runs.

    Student's interval for the difference of two means of runs. The variance is that of all cells together, or the
    cell's own where that is larger: a run that was disturbed in one cell must not be hidden by nine quiet ones. A run
    that is slower is so in all its cells, which therefore do not tell ten times as much as one: the degrees of
    freedom are those of Satterthwaite (An Approximate Distribution of Estimates of Variance Components, 1946) for
    the sum of what cells share in a run and of what is their own. Cells with less than two runs on a side are left out.
    """
    kept = {key: sample for key, sample in samples.items() if min(sample.runs) >= MIN_RUNS}
    if not kept:
        return {}
    rest = np.stack([np.concatenate([_centred(each.a), _centred(each.b)]) for each in kept.values()])
    free = np.isfinite(rest).sum(axis=1) - 2
    squares = np.nansum(rest**2, axis=1)
    pooled = squares.sum() / free.sum()
    variance = np.maximum(np.maximum(pooled, squares / free), MIN_SPREAD**2)
    dof = _degrees_of_freedom(rest, float(free.sum()))
    found = {}
    for (key, sample), each in zip(kept.items(), variance, strict=True):
        own, of_sides = each * sum(1 / count for count in sample.runs), 2 * sample.of_side**2
        free_of = min(KNOWN, dof * ((own + of_sides) / own) ** 2) if of_sides else dof
        log = _mean(sample.b) - _mean(sample.a)
        known = RunError(
            standard_error=math.sqrt(own + of_sides),
            degrees_of_freedom=free_of,
            runs=sample.runs,
            left_open=sample.left_open,
        )
        found[key] = _estimate(log, known), known
    return found


def chance_differs(ratio: Estimate, error: RunError) -> float:
    """The chance of a ratio at least so far from 1, to either side, between equal sides."""
    return 2 * float(stdtr(error.degrees_of_freedom, -abs(math.log(ratio.value)) / error.standard_error))


def chance_below(ratio: Estimate, error: RunError, limit: float) -> float:
    """The chance of a ratio at most so large where the true one is `limit`."""
    return float(stdtr(error.degrees_of_freedom, math.log(ratio.value / limit) / error.standard_error))


def exponential(log: float) -> float:
    """The number of a logarithm, within what a float holds: a damaged baseline may say anything."""
    return math.exp(min(max(log, -MAX_LOG), MAX_LOG))


def holm(chances: Mapping[K, float], level: float, weights: Mapping[K, float] | None = None) -> set[K]:
    """The keys with a significant difference, where the chance of any false alarm is at most `level`.

    The smallest chance ÷ weight is held against level ÷ the sum of all weights, the next against level ÷ the sum of
    those that are left … (Holm, A Simple Sequentially Rejective Multiple Test Procedure, Scandinavian Journal of
    Statistics, 1979); the chances may depend on each other. Without weights all are 1. Weights are above 0.
    """
    weight = {key: 1.0 for key in chances} if weights is None else weights
    order = sorted(chances, key=lambda each: chances[each] / weight[each])
    found: set[K] = set()
    for place, key in enumerate(order):
        if chances[key] / weight[key] > level / sum(weight[each] for each in order[place:]):
            break
        found.add(key)
    return found


def spread(error: RunError) -> float:
    """Standard deviation from run to run, of logarithms."""
    return error.standard_error / math.sqrt(sum(1 / count for count in error.runs))


def _centred(values: Floats) -> Floats:
    centred: Floats = values - _mean(values)
    return centred


def _mean(values: Floats) -> float:
    return float(values[np.isfinite(values)].mean())


def _degrees_of_freedom(rest: Floats, free: float) -> float:
    """Of the pooled variance; `rest` (cells × runs) is what is left of each run without the mean of its side."""
    known = np.isfinite(rest)
    counts = known.sum(axis=0)
    shared = float((np.nansum(rest, axis=0) ** 2 / np.maximum(counts, 1)).sum())
    whole = float(np.nansum(rest**2))
    of_shared = float((counts > 0).sum() - 2)
    own, of_own = max(0.0, whole - shared), free - of_shared
    if whole <= MIN_SPREAD**2 or of_own <= 0:
        return of_shared
    return whole**2 / (shared**2 / of_shared + own**2 / of_own)


def _estimate(log: float, error: RunError) -> Estimate:
    half = float(stdtrit(error.degrees_of_freedom, (1 + LEVEL) / 2)) * error.standard_error
    low, value, high = (exponential(each) for each in (log - half, log, log + half))
    return Estimate(value=value, low=low, high=high, samples=min(error.runs))
