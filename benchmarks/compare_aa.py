"""Does `compare` cry wolf, and does it sleep? Sides of real runs of one commit, and of the same with a known change.

Asked: of 20 pairs of equal sides at most one with an alarm of any kind; a slowdown of 10 % found in at least 19 of 20;
20 ms of data wait attributed to data wait, and to nothing else, in as many. The runs of the four sides take turns, so
that a machine which drifts over the hour does so in all of them.
"""

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import worldsize
from common import keep, say
from worldsize.analysis.compare.comparison import compare_runs
from worldsize.analysis.compare.quantities import OTHERS
from worldsize.analysis.compare.sides import read_side, snapshot
from worldsize.config import CompareSettings
from worldsize.launch.warm import WARM
from worldsize.results.baseline_records import StoredRun, write_baseline
from worldsize.results.comparison_records import ComparisonRecord, RunError
from worldsize.results.records import Estimate

PAIRS, RUNS = 20, 3
"""Comparisons of each kind, and runs on each side of one."""
STEPS = 50
"""Timed steps of each cell in a run: a few less than docs/compare.md advises, for 240 runs in an hour and a half.

A budget of 10 s left six to ten of them, and equal runs differed by 4 % (32 runs); with 30 steps by about 2 %
(240 runs in turn), and a slowdown of 10 % was found in 16 of 20 pairs; by 1 % with 60 (8 runs, by themselves), and by
3 to 5 % on a host whose speed changes from minute to minute (108 runs in turn; found in 6 of 9 pairs). All of these
without normalised ratios.
"""
LIMIT = 0.05
SIDES = {"a": "", "same": "", "slow": "slow", "wait": "wait"}
"""Sides → what benchmarks/planted.py plants; each is compared with the first."""
SETTINGS: dict[str, Any] = {
    "model": f"{Path(__file__).parent / 'planted.py'}:model",
    "data": "synthetic:3x32x32:10:4096",
    "strategies": ("single", "ddp"),
    "world_sizes": (1, 2),
    "batch_sizes": (64,),
    "steps": STEPS,
    "evaluate": "never",
}


def run(data_dir: str | None) -> None:
    """Measure, print and keep, pair by pair."""
    records: dict[str, list[ComparisonRecord]] = {name: [] for name in list(SIDES)[1:]}
    # One warm server for all runs: with one each, 8 of 10 s went into loading torch.
    with tempfile.TemporaryDirectory() as folder, WARM.held():
        kept_in = Path(os.environ.get("COMPARE_AA_RUNS", folder))
        kept_in.mkdir(parents=True, exist_ok=True)
        for pair in range(PAIRS):
            sides = _kept_sides(kept_in / str(pair), Path(folder) / f"runs-{pair}")
            for name, found in records.items():
                settings = CompareSettings(fail_above=LIMIT)
                found.append(compare_runs(sides["a"], sides[name], settings, ("a", name)))
            counts = _counts(records)
            say(f"  pair {pair + 1} of {PAIRS}: {counts}")
            kept = {name: [_kept(each) for each in found] for name, found in records.items()}
            asked = {"pairs": pair + 1, "runs_a_side": RUNS, "steps": STEPS, "limit": LIMIT}
            keep("compare_aa", {**asked, **counts, "comparisons": kept})
    least = f"asked: at least {PAIRS - 1}"
    print(f"compare: {PAIRS} pairs of sides of {RUNS} runs each, {STEPS} steps a cell, gate at {LIMIT:.0%}")
    print(f"  the same commit: an alarm of any kind in {counts['alarms']} (asked: at most 1)")
    print(f"  10 % slower: found in {counts['slow_found']} ({least}); the gate failed in {counts['slow_failed']}")
    print(f"  20 ms of data wait: data wait and no other part in {counts['wait_found']} ({least})")


def _kept_sides(kept: Path, folder: Path) -> dict[str, list[StoredRun]]:
    """The sides of a pair, measured if they are not there yet."""
    paths = {name: kept.with_name(f"{kept.name}-{name}.json") for name in SIDES}
    if not all(path.exists() for path in paths.values()):
        for name, (first, *further) in _sides(folder).items():
            write_baseline(paths[name], first.model_copy(update={"further": further}))
    return {name: read_side(path) for name, path in paths.items()}


def _sides(folder: Path) -> dict[str, list[StoredRun]]:
    """One run of each side in turn, then the next of each."""
    sides: dict[str, list[StoredRun]] = {name: [] for name in SIDES}
    for place in range(RUNS):
        for name, planted in SIDES.items():
            with _planted(planted):
                done = worldsize.study(out=folder / f"{name}{place}", report=False, **SETTINGS)
            sides[name].append(snapshot(done))
    return sides


@contextmanager
def _planted(what: str) -> Iterator[None]:
    os.environ["WORLDSIZE_PLANTED"] = what
    try:
        yield
    finally:
        del os.environ["WORLDSIZE_PLANTED"]


def _counts(records: dict[str, list[ComparisonRecord]]) -> dict[str, int]:
    return {
        "alarms": sum(alarmed(each) for each in records["same"]),
        "slow_found": sum(bool(slower_cells(each)) for each in records["slow"]),
        "slow_failed": sum(map(failed, records["slow"])),
        "wait_found": sum(_others(each) == {"data_wait_s"} for each in records["wait"]),
    }


def alarmed(record: ComparisonRecord) -> bool:
    """Whether anything at all is told apart, or fails."""
    return any(cell.verdict in ("slower", "faster") for cell in record.cells) or bool(_others(record)) or failed(record)


def slower_cells(record: ComparisonRecord) -> set[str]:
    """The cells that are called slower."""
    return {cell.id for cell in record.cells if cell.verdict == "slower"}


def _others(record: ComparisonRecord) -> set[str]:
    """Other significant differences, by name."""
    every = (quantity for cell in record.cells for quantity in cell.quantities)
    return {each.name for each in every if each.name in OTHERS and each.direction in ("larger", "smaller")}


def failed(record: ComparisonRecord) -> bool:
    """Whether the gate failed."""
    return record.gate is not None and record.gate.outcome == "failed"


def _kept(record: ComparisonRecord) -> dict[str, Any]:
    """What is told apart, the ratio of each cell's step time with its interval, and what other rules would judge by."""
    return {
        "outcome": record.gate.outcome if record.gate else None,
        "steps": {cell.id: [cell.verdict, cell.judged_by] for cell in record.cells},
        "ratios": {cell.id: cell.judged.model_dump() for cell in record.cells if cell.judged is not None},
        "plain": {cell.id: _tested(cell.plain, cell.plain_error) for cell in record.cells},
        "relative": {cell.id: _tested(cell.relative, cell.relative_error) for cell in record.cells},
        "normalised": {cell.id: _tested(cell.normalised, cell.normalised_error) for cell in record.cells},
        "reference": {cell.id: cell.reference.model_dump() for cell in record.cells if cell.reference is not None},
        "others": sorted(_others(record)),
    }


def _tested(ratio: Estimate | None, error: RunError | None) -> list[float] | None:
    """The logarithm of a ratio, its standard error and the degrees of freedom of that."""
    if ratio is None or error is None:
        return None
    return [math.log(ratio.value), error.standard_error, error.degrees_of_freedom]
