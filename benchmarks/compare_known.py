"""What `compare` finds where it is known how far runs differ: made runs, 1 to 8 % from run to run, 1 % within them.

Asked: an alarm of any kind in at most 5 % of equal sides, and a slowdown of 10 % found in 95 % where equal runs differ
by 2 %. Whether real runs differ by so little is another matter: `compare_aa` has those. No time is measured here, so
other work may run meanwhile.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))

from common import keep, say
from compare_aa import LIMIT, alarmed, failed, slower_cells
from made_sides import CELLS, Maker, Truth

COMPARISONS = 200
SPREADS = (0.01, 0.02, 0.04, 0.08)
RUNS = (3, 5)
SHARED = 0.3
"""Of the variance between runs, what all cells of a run have in common: as in the runs of `compare_aa` here."""
SLOWER = 1.1
SMALL_STUDY = ("single-w1-b64", "ddp-w1-b64", "ddp-w2-b64")
"""The cells of `compare_aa`."""
SEED = 20_177


@dataclass(frozen=True)
class Kind:
    """What is simulated."""

    cells: tuple[str, ...]
    slower: tuple[str, ...]
    """The cells that take 1.1 times as long."""
    spread: float
    """Standard deviation of the logarithm of a cell's step time from run to run."""
    runs: int
    """On each side."""


def kinds() -> Iterator[Kind]:
    """Three cells that all slow down, as a change of a model does to them; ten, of which one slows down."""
    for cells, slower in ((SMALL_STUDY, SMALL_STUDY), (CELLS, CELLS[3:4])):
        for runs in RUNS:
            for spread in SPREADS:
                yield Kind(cells, slower, spread, runs)


def run(data_dir: str | None) -> None:
    """Simulate, print and keep."""
    main(COMPARISONS)


def main(comparisons: int) -> None:
    """Make so many comparisons of equal sides, and as many with a slowdown, of each kind."""
    print(f"compare: made runs, {comparisons} comparisons of each kind, 1 % within runs, gate at {LIMIT:.0%}")
    print("cells  slower  runs a side  between runs   alarms  found  in each  gate failed")
    found = []
    for number, kind in enumerate(kinds()):
        found.append(_measured(kind, SEED + number, comparisons))
        print(_line(kind, found[-1]), flush=True)
        say(f"  {number + 1} kinds")
        shares = {"shared": SHARED, "slowdown": SLOWER, "limit": LIMIT}
        keep("compare_known", {"comparisons": comparisons, **shares, "kinds": found})


def _measured(kind: Kind, seed: int, comparisons: int) -> dict[str, Any]:
    equal = Truth(between=kind.spread, shared=SHARED)
    slow = replace(equal, factors=dict.fromkeys(kind.slower, SLOWER))
    alarms = found = in_each = gate_failed = 0
    with tempfile.TemporaryDirectory() as folder:
        maker = Maker(Path(folder), seed, kind.cells)
        for _ in range(comparisons):
            alarms += alarmed(maker.compared(equal, equal, kind.runs, fail_above=LIMIT))
            record = maker.compared(equal, slow, kind.runs, fail_above=LIMIT)
            told = slower_cells(record) & set(kind.slower)
            found += bool(told)
            in_each += told == set(kind.slower)
            gate_failed += failed(record)
    return {
        "cells": len(kind.cells),
        "slower_cells": len(kind.slower),
        "runs_a_side": kind.runs,
        "spread_between_runs": kind.spread,
        "alarms": alarms,
        "slow_found": found,
        "slow_found_in_each": in_each,
        "slow_failed": gate_failed,
    }


def _line(kind: Kind, found: dict[str, Any]) -> str:
    return (
        f"{len(kind.cells):>5}  {len(kind.slower):>6}  {kind.runs:>11}  {kind.spread:>12.0%}   {found['alarms']:>6}  "
        f"{found['slow_found']:>5}  {found['slow_found_in_each']:>7}  {found['slow_failed']:>11}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--comparisons", type=int, default=COMPARISONS)
    main(parser.parse_args().comparisons)
