"""Which measured steps a rank replays: drawn with a seed, a measured block at a time (method.md §15)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.results.replay import PHASES, ReplayedCell

Times = NDArray[np.float64]
"""Seconds by phase and step."""


class Drawn(NamedTuple):
    """What one rank waits for in one step, in seconds; in the order of PHASES."""

    data_s: float = 0.0
    forward_s: float = 0.0
    backward_s: float = 0.0
    optimizer_s: float = 0.0
    other_s: float = 0.0


class Draws:
    """The steps of one rank, without end; the same again for the same cell, rank and seed.

    A rank that was measured replays its own steps, and all of these the same step together. A further rank has what all
    share of this step, the constant share of one of the measured ranks, and the rest of another step and rank.
    """

    def __init__(self, cell: ReplayedCell, rank: int, ranks: int, seed: int, *, delay_s: float = 0.0) -> None:
        self.measured: NDArray[np.float64] = np.asarray(cell.times_us, np.float64) / 1e6
        self.blocks, self.rank, self.delay_s = cell.blocks, rank, delay_s
        self.apart = ranks > len(self.measured)
        self._shared = np.random.default_rng([seed, 0])
        self._own = np.random.default_rng([seed, 1, rank])

    @property
    def usual(self) -> Drawn:
        """The mean over ranks and steps."""
        return Drawn(*map(float, self.measured.mean(axis=(0, 2))))

    def __iter__(self) -> Iterator[Drawn]:
        for number in self._order():
            times = self._block(number)
            times[PHASES.index("forward")] += self.delay_s
            for step in times.T:
                yield Drawn(*map(float, np.maximum(step, 0.0)))

    def _order(self) -> Iterator[int]:
        """Each measured block once, in an order that is drawn, and so again: the mean is that which was measured."""
        while True:
            yield from map(int, self._shared.permutation(len(self.blocks)))

    def _block(self, number: int) -> Times:
        """The steps of one measured block."""
        begins = np.cumsum((0, *self.blocks))
        these = slice(begins[number], begins[number + 1])
        if not self.apart:
            return np.array(self.measured[self.rank, :, these])
        count = self.blocks[number]
        shared, own, rest = decomposed(self.measured)
        other = int(self._own.integers(len(self.measured)))
        first = int(self._own.integers(shared.shape[1]))
        again = np.arange(first, first + count) % shared.shape[1]
        found: Times = shared[:, these] + own[self.rank % len(own)][:, None] + rest[other][:, again]
        return found


def decomposed(measured: NDArray[np.float64]) -> tuple[Times, Times, NDArray[np.float64]]:
    """What all ranks share of each step (phase, step), what a rank always has beyond that (rank, phase), and the rest.

    Their sum is what was measured. What others would share with one rank is unknown: all but its mean is then the rest.
    """
    if len(measured) == 1:
        mean = measured.mean(axis=2)
        shared = np.repeat(mean[0][:, None], measured.shape[2], axis=1)
        return shared, np.zeros_like(mean), measured - shared
    shared = measured.mean(axis=0)
    own = measured.mean(axis=2) - shared.mean(axis=1)
    return shared, own, measured - shared - own[:, :, None]
