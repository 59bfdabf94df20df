"""How far the blocks of a study depend on each other, and how much wider that makes an interval (method.md §8).

What is left of a cell's blocks once its level and the speed of the machine are taken out has the covariance
σ² · (ρ^distance within a session + φ within a launch): a disturbance that lasts for some blocks, and what a launch
draws once and keeps. Few launches of one cell say little of φ, and few blocks little of ρ. So both are estimated from
all cells of a study together, by their restricted likelihood (Patterson and Thompson, Recovery of Inter-Block
Information when Block Sizes are Unequal, 1971), and a prior that says how often studies show which of them. What is
still not known is averaged over: an interval is that of a mixture of Student's distributions, one for each pair (ρ, φ).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp, stdtr, stdtrit

from worldsize.analysis.statistics import LEVEL, BlockKey, Floats

Launches = Mapping[BlockKey, int]
"""In which launch of a cell, counted within a session, a block was timed; if absent, in the only one of the session."""

CORRELATIONS = np.sin(np.linspace(0, np.arcsin(0.97), 20))
"""The values of ρ, between neighbouring blocks."""
SPREADS = np.array([0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0])
"""The values of φ, alike but for 0: variance between launches ÷ variance of blocks within one."""
MEAN_CORRELATION = 1 / 6
"""Of the prior of ρ, Beta(1, 5). Studies of training scripts show 0.1 to 0.3 (benchmarks/README.md)."""
ALIKE = 0.85
"""Prior share of studies whose launches are alike. In others φ may be anything: it is 30 where a launch draws one of
two states of a host or of memory."""
MIN_BLOCKS = 3
"""Two blocks of a cell differ by one number, and σ needs that."""
HALVINGS = 28
NEGLIGIBLE = 1e-6
"""Weight, as a share of the largest, of what cannot move an interval."""


@dataclass(frozen=True)
class Series:
    """Logarithms of one value per block, in the order of the blocks."""

    keys: tuple[BlockKey, ...]
    values: Floats
    indicators: Floats
    """Blocks × launches; without a column where launches cannot be told from blocks or from each other."""

    @property
    def pattern(self) -> tuple[tuple[BlockKey, ...], bytes]:
        """The same for series of the same blocks and launches."""
        return self.keys, self.indicators.tobytes()


def series(values: Mapping[BlockKey, float], *launches: Launches) -> Series:
    """A cell's series, or with two `launches` that of the difference of two cells: half of the spread is of each."""
    keys = tuple(sorted(values))
    columns = [column for each in launches for column in _indicators(keys, each)]
    indicators = np.array(columns, dtype=np.float64).reshape(len(columns), len(keys)).T
    return Series(keys, np.array([values[key] for key in keys]), indicators / np.sqrt(max(1, len(launches))))


def _indicators(keys: Sequence[BlockKey], launches: Launches) -> list[list[bool]]:
    own = [(session, launches.get((session, block), 0)) for session, block in keys]
    distinct = sorted(set(own))
    # One launch is in every block; launches of one block each are blocks.
    return [[each == one for each in own] for one in distinct] if 1 < len(distinct) < len(keys) else []


@dataclass(frozen=True, eq=False)
class Dependence:
    """What the cells of a study say of ρ and φ: a weight for each pair of them."""

    weights: Floats
    """Of CORRELATIONS × SPREADS; they add up to 1."""

    def widening(self, found: Series) -> float:
        """Interval width of the mean of a series ÷ that of as many independent blocks."""
        n = len(found.keys)
        plain = np.sqrt(np.var(found.values, ddof=1) / n) * float(stdtrit(n - 1, (1 + LEVEL) / 2))
        if n < MIN_BLOCKS or not plain > 0:
            return 1.0
        _, squares = _likelihood(found.keys, found.indicators, found.values[:, np.newaxis])
        launched = float((found.indicators.sum(axis=0) ** 2).sum())
        errors = np.sqrt(squares[..., 0] / (n - 1) * (_summed(found.keys)[:, np.newaxis] + SPREADS * launched)) / n
        return _quantile(self.weights, errors, n - 1) / float(plain)


def dependence(cells: Sequence[Series], freedom: float) -> Dependence:
    """What series of residuals say together; `freedom`: share of their freedom left after fitting the speed."""
    total = log_prior() + log_likelihood(cells, freedom)
    return Dependence(np.exp(total - logsumexp(total)))


def log_likelihood(cells: Sequence[Series], freedom: float) -> Floats:
    """The restricted log likelihood of all pairs (ρ, φ), of all series together."""
    total = np.zeros((CORRELATIONS.size, SPREADS.size))
    patterns: dict[tuple[tuple[BlockKey, ...], bytes], list[Series]] = {}
    for each in cells:
        if len(each.keys) >= MIN_BLOCKS and np.ptp(each.values) > 0:
            patterns.setdefault(each.pattern, []).append(each)
    for alike in patterns.values():
        values = np.stack([each.values for each in alike], axis=1)
        logs, _ = _likelihood(alike[0].keys, alike[0].indicators, values)
        total += freedom * logs.sum(axis=-1)
    return total


def log_prior() -> Floats:
    """Logarithms of the weights of all pairs (ρ, φ) before anything of a study is known."""
    spaced = np.sqrt(1 - CORRELATIONS**2)  # the values of ρ lie as sines do
    of_rho = spaced * (1 - CORRELATIONS) ** (1 / MEAN_CORRELATION - 2)
    of_phi = np.where(SPREADS > 0, (1 - ALIKE) / (SPREADS.size - 1), ALIKE)
    weights: Floats = np.log(np.outer(of_rho / of_rho.sum(), of_phi))
    return weights


def _neighbours(keys: Sequence[BlockKey]) -> Floats:
    """ρ to the power of the distance from the block before; 0 at the start of a session. CORRELATIONS × blocks."""
    before = [keys[0], *keys[:-1]]
    same = np.array([a[0] == b[0] and a != b for a, b in zip(before, keys, strict=True)])
    distance = np.array([b[1] - a[1] for a, b in zip(before, keys, strict=True)])
    return np.where(same, CORRELATIONS[:, np.newaxis] ** np.where(same, distance, 1), 0.0)


def _likelihood(keys: Sequence[BlockKey], indicators: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The restricted log likelihood and the sum of squares about the mean, in units of σ², of each of some series.

    Both are CORRELATIONS × SPREADS × series.
    """
    n, launches = indicators.shape
    near = _neighbours(keys)[:, :, np.newaxis]
    columns = np.concatenate([indicators, np.ones((n, 1)), values - values.mean(axis=0)], axis=1)
    shifted = np.concatenate([columns[:1], columns[:-1]])
    white = (columns - near * shifted) / np.sqrt(1 - near**2)
    products = white.transpose(0, 2, 1) @ white
    products = products[:, np.newaxis]
    within, across = products[..., :launches, :launches], products[..., :launches, launches:]
    rest = products[..., launches:, launches:]
    phi = SPREADS[:, np.newaxis, np.newaxis]
    inner = np.eye(launches) + phi * within
    solved = np.linalg.solve(inner, np.broadcast_to(across, inner.shape[:2] + across.shape[2:]))
    reduced = rest - phi * (across.swapaxes(-1, -2) @ solved)
    ones = reduced[..., 0, 0]
    squares = np.diagonal(reduced, axis1=-2, axis2=-1)[..., 1:] - reduced[..., 0, 1:] ** 2 / ones[..., np.newaxis]
    squares = np.maximum(squares, 1e-300)
    logs = np.log(1 - near**2).sum(axis=(1, 2))[:, np.newaxis] + np.linalg.slogdet(inner)[1] + np.log(ones)
    return -0.5 * (logs[..., np.newaxis] + (n - 1) * np.log(squares)), squares


@lru_cache(maxsize=32)
def _summed(keys: tuple[BlockKey, ...]) -> Floats:
    """Variance of the sum of correlated blocks, in units of σ², for each of CORRELATIONS."""
    total, carried = np.full(CORRELATIONS.size, float(len(keys))), np.zeros(CORRELATIONS.size)
    for near in _neighbours(keys).T:
        carried = near * carried
        total += 2 * carried
        carried = carried + 1
    return total


def _quantile(weights: Floats, errors: Floats, freedom: int) -> float:
    """Half of the 95 % interval of a mixture of Student's distributions with these standard errors."""
    kept = weights > NEGLIGIBLE * weights.max()
    weights, errors = weights[kept] / weights[kept].sum(), errors[kept]
    low, high = 0.0, float(errors.max() * stdtrit(freedom, 1 - 1e-3 * (1 - LEVEL)))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        outside = 2 * float(weights @ stdtr(freedom, -middle / errors))
        low, high = (middle, high) if outside > 1 - LEVEL else (low, middle)
    return high
