"""Steps that were not seen, drawn from those that were: only what is a rank's own grows with their number (§14)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.analysis.predict.observed import Compute, Ranks
from worldsize.analysis.predict.simulate import Computing

LEAST = 0.2
"""Of its mean computing, however little was drawn for a rank."""


class Drawn(NamedTuple):
    """One step."""

    computing: Computing
    row: int
    """The measured step that it follows; −1 where none was measured."""


def draws(compute: Compute, ranks: Ranks | None, world_size: int, steps: int, seed: int = 0) -> Iterator[Drawn]:
    """What each of `world_size` ranks computes in each of `steps` steps.

    What all ranks share comes from runs of measured steps, so that what lasts for some steps lasts here. What a rank
    always has is that of a measured one, in turn: of more ranks as large a part is slow. The rest is drawn for each
    rank and step by itself. A maximum is never added: the simulation of the step finds who is last.
    """
    generator = np.random.default_rng(seed)
    parts = np.array(compute)
    if ranks is None:
        for _ in range(steps):
            yield Drawn(Computing(*(np.full(world_size, part) for part in parts)), -1)
        return
    own, own_rest, common = ranks.rank, ranks.own, ranks.common
    always = np.resize(own, world_size)
    for row in _rows(ranks.block, steps, generator):
        rest = generator.choice(own_rest, world_size)
        factor = np.maximum(1 + always + common[row] + rest, LEAST)
        yield Drawn(Computing(*(part * factor for part in parts)), row)


def _rows(block: NDArray[np.int64], steps: int, generator: np.random.Generator) -> Iterator[int]:
    """Numbers of measured steps, whole blocks one after the other, drawn with replacement."""
    starts = np.unique(block, return_index=True)[1]
    ends = [*starts[1:], len(block)]
    made = 0
    while made < steps:
        chosen = int(generator.integers(len(starts)))
        for row in range(starts[chosen], ends[chosen]):
            if made < steps:
                yield row
                made += 1
