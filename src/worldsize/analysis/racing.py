"""Which cells of a study still matter: those that are significantly not the fastest drop out early (method.md §8).

Successive elimination (Even-Dar, Mannor and Mansour, Action Elimination and Stopping Conditions for the Multi-Armed
Bandit and Reinforcement Learning Problems, JMLR 2006), with ratios of block means in place of means, because
what a machine does to all cells of a block cancels in a ratio. Looking again and again would find a difference by
chance sooner or later; so the chance that is allowed is shared out over the looks and over the rivals.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import stdtrit

from worldsize.analysis.statistics import TRIM, Blocks, Floats

ERROR_RATE = 0.05
"""Chance that the fastest cell is ever dropped, at most."""
FIRST_LOOK = 5
LOOK_GROWTH = 1.35
"""Looks are taken after 5, 6, 9, 12, 16 … blocks: each shares the allowed chance, so that few are better than many."""


def looks(most: int) -> list[int]:
    """The numbers of blocks, up to `most`, after which cells are compared."""
    found, at = [], float(FIRST_LOOK)
    while int(at) <= most:
        found.append(int(at))
        at = max(at * LOOK_GROWTH, at + 1)
    return found


def log_ratios(top: Blocks, bottom: Blocks) -> Floats:
    """Logarithms of the ratios of block means, over the blocks that both have."""
    common = sorted(top.keys() & bottom.keys())
    return np.array([np.log(np.mean(top[key]) / np.mean(bottom[key])) for key in common])


def mean_and_half(values: Floats, error_rate: float) -> tuple[float, float]:
    """Mean, without the tenth at either end, and half of its interval, which misses with this chance on either side.

    Tukey and McLaughlin 1963: Student's interval for a trimmed mean, from the winsorised variance. Infinite for less
    than two values.
    """
    count = values.size
    if count < 2:
        return (float(values.mean()) if count else 0.0), float("inf")
    cut = int(TRIM * count)
    ordered = np.sort(values)
    kept = ordered[cut : count - cut]
    winsorised = np.clip(ordered, kept[0], kept[-1])
    error = winsorised.std(ddof=1) / ((1 - 2 * cut / count) * np.sqrt(count))
    return float(kept.mean()), float(stdtrit(kept.size - 1, 1 - error_rate) * error)


def relative_half(top: Blocks, bottom: Blocks) -> float:
    """Half of the 95 % interval of a ratio of two cells, as a share of it; infinite for less than two blocks."""
    return mean_and_half(log_ratios(top, bottom), 0.025)[1]


class Race:
    """Cells that compete for being the fastest, and those that are out. Every call must have all that came before."""

    def __init__(self, batches: Mapping[str, int]) -> None:
        """`batches` are the competitors' global batches B: the fastest is the one with the most samples/s."""
        self.batches = dict(batches)
        self.out: set[str] = set()
        self._looked: set[tuple[str, int]] = set()

    def set_batch(self, name: str, batch: int) -> None:
        """The global batch of a competitor, where only running it shows that."""
        if name in self.batches:
            self.batches[name] = batch

    @property
    def left(self) -> list[str]:
        """Those that may be the fastest."""
        return [name for name in self.batches if name not in self.out]

    def look(self, samples: Mapping[str, Blocks]) -> None:
        """Drop those that are significantly slower than another one, where it is time to look."""
        left = [name for name in self.left if samples.get(name)]
        if len(left) < 2:
            return
        best = self.best(samples, left)
        for name in left:
            ratios = self._rates(samples, best, name)
            number = _number_of_look(ratios.size)
            if name == best or number is None or (name, number) in self._looked:
                continue
            self._looked.add((name, number))
            allowed = 6 * ERROR_RATE / (np.pi**2 * number**2 * (len(self.batches) - 1))
            mean, half = mean_and_half(ratios, allowed)
            if mean - half > 0:
                self.out.add(name)

    def best(self, samples: Mapping[str, Blocks], names: Sequence[str] | None = None) -> str:
        """The one with the most samples/s so far, by the blocks that it has in common with the first."""
        names = [name for name in names or self.left if samples.get(name)]
        first = names[0]
        return max(names, key=lambda name: float(np.mean(self._rates(samples, name, first))))

    def tied(self, samples: Mapping[str, Blocks], within: float) -> bool:
        """Whether none that is left can be faster than the best by more than this share."""
        left = [name for name in self.left if samples.get(name)]
        if len(left) < 2:
            return True
        best = self.best(samples, left)
        ratios = [mean_and_half(self._rates(samples, best, name), 0.025) for name in left if name != best]
        return all(half - mean <= np.log1p(within) for mean, half in ratios)

    def _rates(self, samples: Mapping[str, Blocks], name: str, other: str) -> Floats:
        """Logarithms of the ratios of samples/s of two cells, block by block; 0 where they have no block in common."""
        steps = log_ratios(samples[other], samples[name])
        rates: Floats = (steps if steps.size else np.zeros(1)) + np.log(self.batches[name] / self.batches[other])
        return rates


def _number_of_look(blocks: int) -> int | None:
    """Which look it is time for: blocks can be more by several at once, where some that were left out come back."""
    return len(looks(blocks)) or None
