"""Step times of the cells of a study, estimated together: each printed ratio is the quotient of two printed times.

Elapsed time ÷ steps of a cell in a block is taken for (level of the cell) × (speed of the machine in that block), and
both are fitted by the estimating equations of a Poisson regression with a logarithmic link (McCullagh and Nelder,
Generalized Linear Models, 1989, §9.2; Santos Silva and Tenreyro, The Log of Gravity, 2006): the time a cell is then
said to take for its blocks adds up to what it took. Of cells that were timed in the same blocks the level is elapsed
time ÷ steps, and their ratio that of the two; a cell that ended early is shown as if it had been timed in all blocks
(method.md §8).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr, stdtrit

from worldsize.analysis.dependence import Dependence, Launches, dependence, series
from worldsize.analysis.statistics import (
    LEVEL,
    NORMAL_QUANTILE,
    SEED,
    BlockKey,
    Blocks,
    Floats,
    Ratio,
    checked,
    interval,
    mean_of_block,
    scaled,
)
from worldsize.results.records import Estimate

IN_TURN_BLOCK = 1_000_000
"""Blocks of a sweep from this number on were timed in turn with other sizes; those of its trials were not."""
RESAMPLES = 4_000
MIN_RESAMPLES = 1_000
WORK = 5_000_000
"""Most weights drawn for one study: very long ones take fewer resamples, not minutes."""
ROUNDS = 40
"""Rounds of the fit at most; cells that share all their blocks need two."""
CLOSE = 1e-10
UPPER = (1 + LEVEL) / 2


@dataclass(frozen=True, eq=False)
class Level:
    """What a cell takes for a step (s), beside the other cells of its study."""

    value_s: float
    log_draws: Floats
    """Logarithms of its level in resamples of the blocks, which are the same for all cells of a study."""
    blocks: frozenset[BlockKey]
    alone: Estimate | None = None
    """Of a single block: the level with the interval that its steps give, at that level."""
    residuals: Mapping[BlockKey, float] = field(default_factory=dict)
    """Logarithm of its mean step in a block, less its level and the speed of the machine."""
    launches: Launches = field(default_factory=dict)
    dependence: Dependence | None = None
    """Of the blocks of all cells of the study that are fitted together."""

    @property
    def step_s(self) -> Estimate:
        """Mean step with its 95 % interval."""
        if self.alone is not None:
            return self.alone
        low, high = _bounds(self.log_draws, self.value_s, len(self.blocks), 1.0)
        return Estimate(value=self.value_s, low=low, high=high, samples=len(self.blocks))


def levels(
    cells: Mapping[str, Blocks], launches: Mapping[str, Launches] | None = None, *, most_resamples: int | None = None
) -> dict[str, Level]:
    """The level of each cell that has samples; cells that no chain of common blocks joins are fitted apart.

    `launches` tells of each cell in which launch its blocks were timed, where it had several in a session. With
    `most_resamples` 0 there are no intervals, only what would widen them.

    Raises ValueError with a sample that is not above 0.
    """
    known = {name: {k: v for k, v in checked(blocks).items() if v.size} for name, blocks in cells.items()}
    known = {name: blocks for name, blocks in known.items() if blocks}
    keys = sorted({key for blocks in known.values() for key in blocks})
    place = {key: column for column, key in enumerate(keys)}
    generator = np.random.default_rng(SEED)
    # Weights of the blocks (Rubin, The Bayesian Bootstrap, 1981): none is ever 0, so every cell has a level in each.
    resamples = int(np.clip(WORK // max(1, len(keys)), MIN_RESAMPLES, RESAMPLES))
    if most_resamples is not None:
        resamples = min(resamples, most_resamples)
    weights = np.vstack([np.ones(len(keys)), generator.standard_exponential((resamples, len(keys)))])
    found: dict[str, Level] = {}
    for group in _joined(known):
        own = sorted({key for name in group for key in known[name]})
        found |= _fitted(
            {name: known[name] for name in group}, own, weights[:, [place[key] for key in own]], launches or {}
        )
    return {name: found[name] for name in known}


def ratio(top: Level, bottom: Level) -> Ratio:
    """Step of one cell ÷ that of another of the same study, with a 95 % interval; none with one common block."""
    common = len(top.blocks & bottom.blocks)
    count = common or min(len(top.blocks), len(bottom.blocks))
    value = top.value_s / bottom.value_s
    low, high = _bounds(top.log_draws - bottom.log_draws, value, count, widening(top, bottom))
    return Ratio(Estimate(value=value, low=low, high=high, samples=count), paired=bool(common))


def widening(top: Level, bottom: Level) -> float:
    """How many times as wide the interval of a ratio is as it would be, were all blocks independent (method.md §8)."""
    common = top.residuals.keys() & bottom.residuals.keys()
    if top.dependence is None or top.dependence is not bottom.dependence or len(common) < 2:
        return 1.0
    apart = {key: top.residuals[key] - bottom.residuals[key] for key in common}
    return top.dependence.widening(series(apart, top.launches, bottom.launches))


def selection_widening(best: tuple[Level, Level], others: Sequence[tuple[Level, Level]]) -> float:
    """Factor on the lower half width (of the logarithm) of the largest of some ratios, for having been selected.

    Each ratio is (top, bottom); `others` may be as large. Where several are alike, the largest estimate is too high
    more often than too low. So the lower end moves down: to a quantile of the largest deviation of all of them in the
    same resamples, each in units of its own quantile, turned into that of Student's distribution for as many blocks.
    The upper end stays. It is missed less often than that of one ratio alone, and by half of that difference the lower
    end may be missed more often. By all of the difference, seven equal cells that precision ended were held in 91.5 %
    where ρ = 0.8; by none of it, in 95.9 there, but in 98.5 where blocks are independent (600 studies of each).
    """
    each = [_deviations(*pair) for pair in (best, *others)]
    apart = np.max([deviations / max(1e-12, np.quantile(deviations, UPPER)) for deviations in each], axis=0)
    blocks = len(best[0].blocks & best[1].blocks)
    if blocks < 2:
        return 1.0
    spared = max(0.0, 1 - UPPER - float(np.mean(apart < -1)))
    reached = float(ndtr(NORMAL_QUANTILE * max(1.0, float(np.quantile(apart, UPPER - spared / 2)))))
    return float(stdtrit(blocks - 1, min(reached, 1 - 1e-9)) / stdtrit(blocks - 1, UPPER))


def _deviations(top: Level, bottom: Level) -> Floats:
    """Of the logarithm of a ratio from its value, in each resample."""
    deviations: Floats = top.log_draws - bottom.log_draws - np.log(top.value_s / bottom.value_s)
    return deviations


def ratio_estimate(numerator: Blocks, denominator: Blocks) -> Ratio:
    """`ratio` of two cells by themselves; raises ValueError without samples or with one that is not above 0."""
    return ratio(*_pair(numerator, denominator))


def ratio_value(numerator: Blocks, denominator: Blocks) -> float:
    """`ratio_estimate` without the interval, which takes the time; raises ValueError as `ratio_estimate` does."""
    top, bottom = _pair(numerator, denominator, most_resamples=0)
    return top.value_s / bottom.value_s


def _pair(numerator: Blocks, denominator: Blocks, most_resamples: int | None = None) -> tuple[Level, Level]:
    found = levels({"numerator": numerator, "denominator": denominator}, most_resamples=most_resamples)
    if len(found) < 2:
        raise ValueError("a ratio needs samples on both sides")
    return found["numerator"], found["denominator"]


def _bounds(log_draws: Floats, value: float, blocks: int, widening: float) -> tuple[float | None, float | None]:
    """The interval of so many blocks; random weights spread a mean by 1/(n + 1) of what n blocks are apart, not 1/n.

    None without resamples.
    """
    if not log_draws.size:
        return None, None
    apart = (log_draws - np.log(value)) * np.sqrt((blocks + 1) / blocks) * widening
    low, high = interval(np.log(value) + apart, np.log(value), blocks)
    return None if low is None else min(low, value), None if high is None else max(high, value)


def _joined(cells: Mapping[str, Blocks]) -> list[list[str]]:
    """The cells in groups that chains of common blocks hold together."""
    groups: list[tuple[set[BlockKey], list[str]]] = []
    for name, blocks in cells.items():
        keys, names = set(blocks), [name]
        for other in [group for group in groups if group[0] & keys]:
            groups.remove(other)
            keys, names = keys | other[0], other[1] + names
        groups.append((keys, names))
    return [names for _, names in groups]


def _fitted(
    cells: Mapping[str, Blocks], keys: list[BlockKey], weights: Floats, launches: Mapping[str, Launches]
) -> dict[str, Level]:
    """The levels of cells that are joined; `weights` (resamples × blocks) has the data themselves in its first row."""
    times = np.array([[blocks[key].sum() if key in blocks else 0.0 for key in keys] for blocks in cells.values()])
    steps = np.array([[blocks[key].size if key in blocks else 0 for key in keys] for blocks in cells.values()], float)
    elapsed = weights @ times.T
    level = elapsed / (weights @ steps.T)
    for _ in range(ROUNDS):
        speed = times.sum(axis=0) / (level @ steps)
        before, level = level, elapsed / ((weights * speed) @ steps.T)
        if np.abs(np.log(level / before)).max() < CLOSE:
            break
    # Blocks count by their length, as a share of what each cell has on average.
    present = steps > 0
    length = (steps / (steps.sum(axis=1) / present.sum(axis=1))[:, np.newaxis]).sum(axis=0) / present.sum(axis=0)
    mean_speed = ((weights * length) * speed).sum(axis=1) / (weights @ length)
    logs = np.log(level * mean_speed[:, np.newaxis])
    residuals = _residuals(cells, keys, times, steps * level[0][:, np.newaxis] * speed[0])
    together = dependence(
        [series(residuals[name], launches.get(name, {})) for name in cells], 1 - 1 / present.sum(axis=0).mean()
    )
    return {
        name: Level(
            value_s=float(np.exp(logs[0, column])),
            log_draws=logs[1:, column],
            blocks=frozenset(blocks),
            alone=_alone(blocks, float(np.exp(logs[0, column]))),
            residuals=residuals[name],
            launches=launches.get(name, {}),
            dependence=together,
        )
        for column, (name, blocks) in enumerate(cells.items())
    }


def _alone(blocks: Blocks, value_s: float) -> Estimate | None:
    """Of a cell of one block its level, so that ratios are those of the printed times; None with several blocks."""
    if len(blocks) > 1:
        return None
    mean = mean_of_block(next(iter(blocks.values())))
    return scaled(mean, value_s / mean.value)


def _residuals(
    cells: Mapping[str, Blocks], keys: list[BlockKey], times: Floats, fitted: Floats
) -> dict[str, dict[BlockKey, float]]:
    """What the fit leaves of each cell. Blocks with one cell are left out: the fitted speed absorbs them."""
    shared = (fitted > 0).sum(axis=0) > 1
    return {
        name: {
            key: float(np.log(times[row, column] / fitted[row, column]))
            for column, key in enumerate(keys)
            if key in blocks and shared[column]
        }
        for row, (name, blocks) in enumerate(cells.items())
    }
