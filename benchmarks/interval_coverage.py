"""How often 95 % intervals hold the truth, and how wide they are: simulated studies whose true ratios are known.

Kinds are weighted as real studies show them (`--of FOLDER …` asks run folders). Asked: over that mixture 93 to 97 % of
ratios are held, in each kind of it 88 %, and where blocks are independent and launches alike the median interval is at
most 1.25 times as wide as Student's of the paired log ratios. No time is measured, so other work may run meanwhile.
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

from scipy.special import logsumexp

from common import keep, say
from made_studies import World, doubling, hold, share
from worldsize.analysis import dependence, levels
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run

STUDIES = 1_000
"""They leave 0.8 points open. Of 400 two kinds of 54 that hold 93 % were at 92: the least of many is an unlucky one."""
SEED = 20_179
"""No rule of the analysis was chosen by studies of this seed."""
ROUNDS = 300
"""Of the EM algorithm."""
RESAMPLES = 1_000
"""Fewer than a report draws: their luck moves a bound by some percent of the width, outwards as often as inwards."""
AIM = 0.03
CORRELATIONS = {0.0: 0.3, 0.2: 0.5, 0.4: 0.2, 0.8: 0.0}
LAUNCHES = {0.0: 0.9, 0.02: 0.05, 0.08: 0.05}
TAILS = {0.0: 0.8, 0.01: 0.2}
"""How often real studies show a ρ, a standard deviation of launches, and a share of steps that take several times as
long. ρ = 0.8 was seen in none, and is told beside them."""
LIMITS, WORST, WIDEST = (0.93, 0.97), 0.88, 1.25


def worlds() -> Iterator[World]:
    """All combinations; several numbers of blocks, and a study that ends when it is precise."""
    for cells in (2, 6):
        for blocks, aim in ((6, None), (12, None), (30, None), (40, AIM)):
            for correlation in CORRELATIONS:
                for spread in LAUNCHES:
                    for tails in TAILS:
                        yield World(cells, blocks, correlation, spread, before=doubling(blocks), aim=aim, tails=tails)


def weight(world: World) -> float:
    """The share of real studies that are of such a kind, numbers of cells and blocks being given."""
    return CORRELATIONS[world.correlation] * LAUNCHES[world.spread] * TAILS[world.tails]


def run(data_dir: str | None) -> None:
    """Simulate, print and keep."""
    main(STUDIES)


def main(studies: int, *, only: Sequence[int] = (), seed: int = SEED) -> None:
    """Simulate so many studies of each kind, or of those with `only` these numbers."""
    kept_as = "interval_coverage" + ("-some" if only else "")
    print(f"95 % intervals, {studies} studies of each kind: share that hold the truth, width")
    print("cells  ended by    rho  launches  tails   ratios  headline  half width  ÷ Student  blocks")
    every = dict(enumerate(worlds(), 1))
    kinds = {number: every[number] for number in only or every}
    found: list[dict[str, Any]] = []
    with ProcessPoolExecutor() as pool:  # on all cores: nothing is timed
        held = pool.map(_measured, kinds, kinds.values(), repeat(studies), repeat(seed))
        for world, each in zip(kinds.values(), held, strict=True):
            print(_line(world, each), flush=True)
            found.append(each)
            say(f"  {len(found)} of {len(kinds)} kinds")
    whole = over_all(list(kinds.values()), found)
    for name, value in whole.items():
        print(f"{name}: {value:.3f}")
    keep(kept_as, {"studies": studies, "resamples": RESAMPLES, "seed": seed, "over_all": whole, "kinds": found})


def over_all(kinds: Sequence[World], found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """What is asked, of the mixture."""
    seen = [(weight(world), each) for world, each in zip(kinds, found, strict=True) if weight(world)]
    shares = [share for share, _ in seen]
    plain = [e["of_student"] for w, e in zip(kinds, found, strict=True) if not (w.correlation or w.spread or w.tails)]
    return {
        f"ratios held, mixture (asked {LIMITS[0]:.0%} to {LIMITS[1]:.0%})": float(
            np.average([each["ratios_held"] for _, each in seen], weights=shares)
        ),
        "headlines held, mixture": float(np.average([each["headlines_held"] for _, each in seen], weights=shares)),
        f"ratios held, worst kind of it (asked {WORST:.0%})": min(each["ratios_held"] for _, each in seen),
        f"median width ÷ Student's, blocks independent, widest (asked {WIDEST:g})": max(plain, default=float("nan")),
        "ratios held where rho is 0.8, mean": float(
            np.mean([e["ratios_held"] for w, e in zip(kinds, found, strict=True) if not weight(w)] or [np.nan])
        ),
    }


def _measured(number: int, world: World, studies: int, seed: int) -> dict[str, Any]:
    levels.RESAMPLES = levels.MIN_RESAMPLES = RESAMPLES
    held = hold(world, np.random.default_rng([number - 1, seed]), studies)
    return {
        **asdict(world),
        "ratios_held": share(held.ratios),
        "headlines_held": share(held.headlines),
        "median_half_width": float(np.median(held.widths)),
        "of_student": float(np.median(held.of_student)),
        "mean_blocks": float(np.mean(held.blocks)),
    }


def _line(world: World, found: dict[str, Any]) -> str:
    ended = f"{world.blocks} blocks" if world.aim is None else f"±{world.aim:.0%}"
    return (
        f"{world.cells:>5}  {ended:<10} {world.correlation:>4}  {world.spread:>8.0%}  {world.tails:>5.0%}   "
        f"{found['ratios_held']:>6.1%}  {found['headlines_held']:>8.1%}  {found['median_half_width']:>10.1%}  "
        f"{found['of_student']:>9.2f}  {found['mean_blocks']:>6.0f}"
    )


def of_folders(folders: Sequence[str]) -> None:
    """Print what run folders say of ρ and φ: how often each value is seen, as explains them all best (by EM)."""
    totals = []
    for folder in folders:
        cells = [cell.level for cell in analyse(load_run(Path(folder))).cells if cell.level is not None]
        every = [dependence.series(level.residuals, level.launches) for level in cells]
        totals.append(dependence.log_likelihood(every, 1 - 1 / len(every)))
    logs, weights = np.array(totals), np.full(totals[0].shape, 1 / totals[0].size)
    for _ in range(ROUNDS):
        post = logs + np.log(weights)
        weights = np.exp(post - logsumexp(post, axis=(1, 2), keepdims=True)).mean(axis=0) + 1e-300
    print(f"{len(folders)} studies")
    for name, values, axis in (("rho", dependence.CORRELATIONS, 1), ("phi", dependence.SPREADS, 0)):
        shares = zip(values, weights.sum(axis=axis), strict=True)
        print(f"  {name}: {', '.join(f'{value:.2f} in {share:.0%}' for value, share in shares if share > 0.005)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--only", type=int, nargs="+", default=[], help="kinds by their place in the list, from 1")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--of", nargs="+", default=[], help="run folders: how often they show which rho and phi")
    asked = parser.parse_args()
    if asked.of:
        of_folders(asked.of)
    else:
        main(asked.studies, only=asked.only, seed=asked.seed)
