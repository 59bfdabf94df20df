"""How often 95 % intervals hold the truth: simulated studies with known ratios, correlated blocks and unlike launches.

Asked: at least 93 % for every ratio and for the headline, the ratio of the fastest of several equal cells, and not more
than 98 % where blocks are independent and launches alike. No time is measured, so other work may run meanwhile.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from common import keep, say
from made_studies import World, doubling, hold, share
from worldsize.analysis import levels

STUDIES = 1_000
"""They leave 0.8 points open. Of 400 two kinds of 54 that hold 93 % were at 92: the least of many is an unlucky one."""
SEED = 20_179
"""No rule of the analysis was chosen by studies of this seed."""
RESAMPLES = 1_000
"""Fewer than a report draws: their luck moves a bound by some percent of the width, outwards as often as inwards."""
AIM = 0.03
FEW = (2, 2)
"""Blocks of the launches before the last one where a budget has room for three; else cells are launched again whenever
their blocks have doubled."""
MIN, MAX = 0.93, 0.98


def worlds(*, few_launches: bool = False) -> Iterator[World]:
    """All combinations that are asked for; several numbers of blocks, and a study that ends when it is precise."""
    for cells in (2, 4, 7):
        for blocks, aim in ((12, None), (30, None), (40, AIM)):
            for correlation in (0.0, 0.5, 0.8):
                for spread in (0.0, 0.02):
                    before = FEW if few_launches else doubling(blocks)
                    yield World(cells, blocks, correlation, spread, before=before, aim=aim)


def run(data_dir: str | None) -> None:
    """Simulate, print and keep."""
    main(STUDIES)


def main(studies: int, *, few_launches: bool = False, only: Sequence[int] = (), seed: int = SEED) -> None:
    """Simulate so many studies of each kind, or of those with `only` these numbers."""
    kept_as = "interval_coverage" + ("-few-launches" if few_launches else "") + ("-some" if only else "")
    print(f"share of 95 % intervals that hold the truth, {studies} studies of each kind (asked: {MIN:.0%} at least,")
    print(f"{MAX:.0%} at most where blocks are independent and launches alike)")
    print("cells  ended by    rho  launches   ratios  headline  half width  blocks")
    every = dict(enumerate(worlds(few_launches=few_launches), 1))
    kinds = {number: every[number] for number in only or every}
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor() as pool:  # on all cores: nothing is timed
        held = pool.map(_measured, kinds, kinds.values(), repeat(studies), repeat(seed))
        for world, each in zip(kinds.values(), held, strict=True):
            print(_line(world, each), flush=True)
            found.append(each)
            say(f"  {len(found)} of {len(kinds)} kinds")
            keep(kept_as, {"studies": studies, "resamples": RESAMPLES, "seed": seed, "kinds": found})


def _measured(number: int, world: World, studies: int, seed: int) -> dict[str, Any]:
    levels.RESAMPLES = levels.MIN_RESAMPLES = RESAMPLES
    held = hold(world, np.random.default_rng([number - 1, seed]), studies)
    return {
        **asdict(world),
        "ratios_held": share(held.ratios),
        "headlines_held": share(held.headlines),
        "median_half_width": float(np.median(held.widths)),
        "mean_blocks": float(np.mean(held.blocks)),
    }


def _line(world: World, found: dict[str, Any]) -> str:
    ended = f"{world.blocks} blocks" if world.aim is None else f"±{world.aim:.0%}"
    return (
        f"{world.cells:>5}  {ended:<10} {world.correlation:>4}  {world.spread:>8.0%}   {found['ratios_held']:>6.1%}  "
        f"{found['headlines_held']:>8.1%}  {found['median_half_width']:>10.1%}  {found['mean_blocks']:>6.0f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--few-launches", action="store_true", help="three of each cell, 2, 2 and the other blocks")
    parser.add_argument("--only", type=int, nargs="+", default=[], help="kinds by their place in the list, from 1")
    parser.add_argument("--seed", type=int, default=SEED)
    asked = parser.parse_args()
    main(asked.studies, few_launches=asked.few_launches, only=asked.only, seed=asked.seed)
