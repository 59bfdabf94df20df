"""Medians, means and outliers of times, with intervals that respect blocks and drift (method.md §8).

Step times of one block are not independent of each other, and machines drift. So the unit that is resampled
is the block, and two cells are compared block by block, where both were measured next to each other in time.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls
from scipy.special import stdtrit

from worldsize.results.records import Estimate

Floats = NDArray[np.float64]
BlockKey = tuple[int, int]
"""(session, block): the turn in which samples were taken; all cells of a study share the numbering."""
Blocks = Mapping[BlockKey, Floats]
"""The samples of one cell, by the turn in which they were taken."""

RESAMPLES = 10_000
"""Enough for the 2.5 % points of a bootstrap distribution to move by less than 2 % of the interval."""
MIN_RESAMPLES = 1_000
WORK = 5_000_000
"""Most values drawn for one interval: very long runs take fewer resamples, not minutes."""
CHUNK = 2_000_000
"""Values drawn at a time, so that memory stays at some tens of MB."""
SEED = 20_177
"""Fixed, so that a report made twice from the same samples is the same."""
TRIM = 0.1
"""Share of the block ratios that is left out of their mean at either end (Tukey and McLaughlin 1963)."""
LEVEL = 0.95
NORMAL_QUANTILE = 1.959964
"""Quantile of the standard normal distribution at (1 + LEVEL) / 2."""
OUTLIER_Z = 3.5
"""Modified z-score above which a value is flagged (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""
ROUNDS = 50
"""Of weights, each by the fit of the round before."""


@dataclass(frozen=True)
class Ratio:
    """A ratio of two cells with its interval."""

    estimate: Estimate
    paired: bool
    """False if the cells have no (session, block) in common: drift between them is then in the ratio."""

    def scaled(self, factor: float) -> "Ratio":
        """The same ratio times an exact positive factor."""
        return Ratio(scaled(self.estimate, factor), self.paired)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """An estimate and its interval times an exact positive factor."""
    low, high = (None if bound is None else bound * factor for bound in (estimate.low, estimate.high))
    return Estimate(value=estimate.value * factor, low=low, high=high, samples=estimate.samples)


def reciprocal(estimate: Estimate, numerator: float = 1.0) -> Estimate:
    """`numerator` ÷ estimate, for a positive estimate; the ends of the interval change places."""
    low, high = (None if bound is None else numerator / bound for bound in (estimate.high, estimate.low))
    return Estimate(value=numerator / estimate.value, low=low, high=high, samples=estimate.samples)


def median_estimate(blocks: Blocks) -> Estimate:
    """Median of all samples with a 95 % interval from a bootstrap over blocks (method.md §8).

    Several blocks: blocks are drawn with replacement and their samples pooled. One block: a moving-block
    bootstrap over its samples (Künsch 1989), in windows of about the square root of their number, because
    consecutive step times are autocorrelated and drawing them one by one would make the interval too narrow.
    (Strong autocorrelation, 0.8 from step to step, still makes it cover 80 to 90 % instead of 95 %: several
    blocks are better.) One sample: no interval. Raises ValueError without samples or with a sample that is not above 0.
    """
    arrays = [values for values in checked(blocks).values() if values.size]
    if not arrays:
        raise ValueError("a median needs at least one sample")
    pooled = np.concatenate(arrays)
    value = float(np.median(pooled))
    if pooled.size == 1:
        return Estimate(value=value, samples=1)
    if len(arrays) == 1:
        window = _window(pooled.size)
        medians, independent = _moving_blocks(pooled, window, np.median), pooled.size // window
        samples = pooled.size
    else:
        medians, independent = _pooled_medians(arrays, _resamples(pooled.size)), len(arrays)
        samples = len(arrays)
    low, high = interval(np.log(medians), np.log(value), independent)
    return Estimate(value=value, low=low, high=high, samples=samples)


def mean_of_block(steps: Floats) -> Estimate:
    """Mean of the steps of one block, with the interval of a moving-block bootstrap as `median_estimate` has it."""
    value = float(steps.mean())
    if steps.size == 1:
        return Estimate(value=value, samples=1)
    window = _window(steps.size)
    draws = _moving_blocks(steps, window, np.mean)
    low, high = interval(np.log(draws), np.log(value), steps.size // window)
    return Estimate(value=value, low=low, high=high, samples=steps.size)


def log_mean(blocks: Blocks, steps: Mapping[BlockKey, int]) -> float:
    """The logarithm of the mean over all steps of one value per block: of step times, elapsed time ÷ steps."""
    logs = np.log(np.concatenate(list(blocks.values())))
    weights = [max(1, steps[key]) for key in blocks]
    largest = logs.max()  # a damaged file may hold values whose sum no float holds
    return float(largest + np.log(np.average(np.exp(logs - largest), weights=weights)))


def mean_estimate(blocks: ArrayLike) -> Estimate:
    """Mean of one value per block, of any sign, with Student's 95 % interval; one block has no interval."""
    values = np.asarray(blocks, dtype=np.float64)
    value, count = float(values.mean()), values.size
    if count < 2:
        return Estimate(value=value, samples=count)
    half = float(stdtrit(count - 1, (1 + LEVEL) / 2) * values.std(ddof=1) / np.sqrt(count))
    return Estimate(value=value, low=value - half, high=value + half, samples=count)


def outliers(values: ArrayLike) -> NDArray[np.bool_]:
    """Flags (never drops) values whose modified z-score by the median absolute deviation is above 3.5.

    Where more than half of the values are equal that deviation is 0, and the mean absolute deviation stands in
    (Iglewicz and Hoaglin 1993).
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        return np.zeros(0, dtype=bool)
    distance = np.abs(array - np.median(array))
    # 1.4826 and 1.2533 turn either deviation into the standard deviation of normal data.
    spread = 1.4826 * np.median(distance) or 1.2533 * np.mean(distance)
    flagged: NDArray[np.bool_] = distance > OUTLIER_Z * spread
    return flagged


def nonnegative_fit(design: Floats, values: Floats, doubts: Floats) -> Floats:
    """Coefficients, none below 0, of the columns of `design` that give `values`, each known to its `doubts`.

    A value that is far off counts less than by its square (soft L1 loss, by repeated least squares).
    """
    scaled, wanted, weights = design / doubts[:, None], values / doubts, np.ones(len(values))
    for _ in range(ROUNDS):
        found, _ = nnls(scaled * weights[:, None], wanted * weights)
        weights = (1 + (scaled @ found - wanted) ** 2) ** -0.25
    return np.asarray(found)


def half_width(estimate: Estimate) -> float | None:
    """Half of the interval as a share of the value; None without an interval."""
    if estimate.low is None or estimate.high is None:
        return None
    return (estimate.high - estimate.low) / 2 / estimate.value


def includes(estimate: Estimate, value: float) -> bool:
    """Whether the interval holds `value`; True without an interval: one sample rules nothing out."""
    if estimate.low is None or estimate.high is None:
        return True
    return estimate.low <= value <= estimate.high


def checked(blocks: Blocks) -> dict[BlockKey, Floats]:
    """The blocks as arrays of positive floats; times and rates are compared by their ratios."""
    arrays = {key: np.asarray(values, dtype=np.float64) for key, values in blocks.items()}
    if any(values.size and not values.min() > 0 for values in arrays.values()):
        raise ValueError("samples must be above 0")
    return arrays


def _window(samples: int) -> int:
    """Length of the windows of the moving-block bootstrap; the cube root would do for slight correlation only."""
    return max(1, min(math.isqrt(samples), samples // 2))


def _resamples(values: int) -> int:
    """How many resamples of `values` values are worth their time."""
    return min(max(WORK // values, MIN_RESAMPLES), RESAMPLES)


def _chunks(resamples: int, values: int) -> list[int]:
    """How many resamples of `values` values to draw at a time."""
    size = max(1, CHUNK // values)
    return [min(size, resamples - done) for done in range(0, resamples, size)]


def _moving_blocks(values: Floats, window: int, statistic: Callable[..., Any]) -> Floats:
    """A statistic of resamples that are made of windows of consecutive values."""
    generator = np.random.default_rng(SEED)
    windows, offsets = -(-values.size // window), np.arange(window)
    found = []
    for rows in _chunks(_resamples(values.size), values.size):
        starts = generator.integers(values.size - window + 1, size=(rows, windows, 1))
        index = (starts + offsets).reshape(rows, -1)[:, : values.size]
        found.append(statistic(values[index], axis=1))
    return np.concatenate(found)


def _pooled_medians(arrays: list[Floats], resamples: int) -> Floats:
    """Medians of the pooled samples of resampled blocks, for blocks of any lengths (m samples in n blocks).

    A resample is told by how often each block was drawn. Times the number of samples of each block at or below
    each sorted sample (n × m), that is the resample's cumulative count, and its median lies where the count
    passes one half: one matrix product instead of a sort per resample.
    """
    generator = np.random.default_rng(SEED)
    n, pooled = len(arrays), np.sort(np.concatenate(arrays))
    at_or_below = np.stack([np.searchsorted(np.sort(values), pooled, side="right") for values in arrays])
    at_or_below = at_or_below.astype(np.float32)  # counts are exact in single precision up to 2**24
    medians = []
    for rows in _chunks(resamples, pooled.size):
        index = generator.integers(n, size=(rows, n)) + n * np.arange(rows)[:, np.newaxis]
        drawn = np.bincount(index.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float32)
        count = drawn @ at_or_below
        total = count[:, -1:]
        lower = np.argmax(2 * count >= total, axis=1)
        upper = np.argmax(2 * count > total, axis=1)
        medians.append((pooled[lower] + pooled[upper]) / 2)
    return np.concatenate(medians)


def interval(log_draws: Floats, log_value: float, independent: int) -> tuple[float | None, float | None]:
    """Percentile interval of a bootstrap distribution, widened for few independent samples.

    The plain percentile interval is too narrow for few samples: it uses the spread with n instead of n − 1 in
    the denominator, and the normal instead of Student's distribution (Hesterberg, What Teachers Should Know
    About the Bootstrap, 2015, §5.3). The factor puts both right; without it, five blocks cover 86 % instead
    of 95 %. Deviations are widened in logarithms, so that no bound of a time falls below 0.
    """
    if independent < 2:
        return None, None
    student = float(stdtrit(independent - 1, (1 + LEVEL) / 2))
    factor = np.sqrt(independent / (independent - 1)) * student / NORMAL_QUANTILE
    bounds = np.quantile(log_draws - log_value, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * factor
    low, high = np.exp(log_value + bounds)
    # Rounding, or a distribution to one side of the value, must not leave the value outside its own interval.
    value = float(np.exp(log_value))
    return min(float(low), value), max(float(high), value)
