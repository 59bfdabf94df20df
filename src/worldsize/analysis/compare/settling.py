"""What would settle a gate that is not known: how many runs, and the commands that make and compare them."""

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from worldsize.analysis.compare.over_runs import PROOF, STEP_ALARM, spread
from worldsize.analysis.compare.verdicts import alarm_shares
from worldsize.analysis.numbers import percent_text
from worldsize.config import CompareSettings
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Gate, Side
from worldsize.results.provenance import Provenance, short_commit

FIRST_RUNS = 3
"""On each side, where the spread between runs is not known yet."""
MAX_RUNS = 20
"""More runs than these are too many for a gate."""
POWER = 0.8
"""Chance that so many runs settle it, if the true ratio is the one that was seen."""
LONGER_HELPS = 0.5
"""Share of the variance between runs that their own blocks leave open, from which on longer runs are advised too."""
OWN_FLAGS = {"--out": 1, "-o": 1, "--resume": 0, "--json": 0, "--open": 0}
"""Flags of a recorded command that another run must not have, with how many words follow each."""


def settling(record: ComparisonRecord, settings: CompareSettings, gate: Gate) -> list[str]:
    """Lines to paste: more runs of either side, then the comparison of all; or why no number of runs would do."""
    codes = {finding.code for finding in gate.findings if finding.weight == "not known"}
    if not codes & {"one-run", "maybe-slower", "not-ruled-out", "machine"}:
        if "baseline" in codes:
            return ["Plain step times would settle it, of runs of both sides that took turns: --judge-by plain."]
        return ["More runs would not settle it: give runs of the same work, from the same kind of machine."]
    needed = runs_needed(record.cells, 1 + gate.fail_above, strict=gate.strict)
    if "machine" in codes:
        return _in_turn(record, settings, min(needed, MAX_RUNS))
    if "one-run" not in codes:  # where chance alone is in the way, more runs than there are
        needed = max(needed, 1 + min(len(side.runs) for side in (record.a, record.b)))
    if needed > MAX_RUNS:
        return [
            f"More than {MAX_RUNS} runs a side would be needed: what was seen is small beside what runs of the same "
            "commit differ by. Choose another limit.",
            *_longer(record),
        ]
    paths: list[str] = []
    lines: list[str] = []
    for letter, side in (("A", record.a), ("B", record.b)):
        more = _more(side, needed)
        paths.append(",".join([side.path, *more]))
        if more:
            lines += _commands(letter, side, more)
    return [*_longer(record), *lines, shlex.join(["worldsize", "compare", *paths, *_flags(settings)])]


def runs_needed(cells: Sequence[CellComparison], limit: float, *, strict: bool) -> int:
    """Runs a side after which the cells that are open are probably settled (two normal means, known spread)."""
    shares = alarm_shares(cells)
    most = FIRST_RUNS
    for cell in cells:
        if cell.judged is None or cell.judged_error is None:
            continue
        above = cell.judged.value > limit
        if cell.verdict == "slower" or not (above or strict):
            continue
        level = STEP_ALARM * shares[cell.id] / 2 if above else PROOF
        gap = math.log(cell.judged.value) if above else math.log(limit / cell.judged.value)
        reach = spread(cell.judged_error) * float(ndtri(1 - level) + ndtri(POWER))
        needed = 2 * (reach / gap) ** 2 if gap > 0 else math.inf
        most = max(most, math.ceil(min(needed, MAX_RUNS + 1)))
    return most


def _longer(record: ComparisonRecord) -> list[str]:
    """A line where runs differ for want of steps: longer runs have no start and no warm-up to pay for once more."""
    errors = [cell.judged_error for cell in record.cells if cell.judged_error is not None]
    known = [(error.left_open**2, spread(error) ** 2) for error in errors if error.left_open is not None]
    if not known:
        return []
    left_open, between = np.sum(known, axis=0)
    share = min(1.0, float(left_open / between))
    if share < LONGER_HELPS:
        return []
    return [
        f"# Longer runs help too: {percent_text(share)} of the variance between runs is what so few steps leave "
        "open. Four times the steps (--steps or --budget) halve that part of the spread."
    ]


def _in_turn(record: ComparisonRecord, settings: CompareSettings, runs: int) -> list[str]:
    """Make new runs of both sides in turn: the machine changed between the runs that are there."""
    paths = [_more(side, len(side.runs) + runs) for side in (record.a, record.b)]
    lines = ["# The machine was not the same for both sides: new runs of both, in turn."]
    for a, b in zip(*paths, strict=True):
        lines += [*_commands("A", record.a, [a]), *_commands("B", record.b, [b])]
    return [*lines, shlex.join(["worldsize", "compare", *map(",".join, paths), *_flags(settings)])]


def _more(side: Side, needed: int) -> list[str]:
    """Paths of the runs that a side lacks, beside its first; several given runs are not counted twice."""
    first = side.path.split(",")[0]
    base = first.removesuffix(".json").rstrip("/")
    return [f"{base}-{place}" for place in range(len(side.runs) + 1, needed + 1)]


def _commands(letter: str, side: Side, paths: list[str]) -> Iterator[str]:
    """The commands that make them: as the first run was made, with its code."""
    provenance = side.runs[0].provenance
    command, code = _again(provenance.command), "".join(f", {each}" for each in _code(provenance))
    if command is None:
        yield f"# {letter}: {len(paths)} more run(s), made as the first{code}, in {', '.join(paths)}"
        return
    yield f"# {letter}{code}:"
    for path in paths:
        yield shlex.join([*command, "--out", path])


def _code(provenance: Provenance) -> Iterator[str]:
    """With which code a run was made: the user's own first, for that is what differs most often."""
    own = provenance.user_code
    if own is not None and own.files and own.commit is None:
        yield "with your files as they were then"
    for whose, commit in (("your code", own and own.commit), ("worldsize", provenance.commit)):
        name = short_commit(commit) if commit else ""
        if name.replace("+", "").replace(", ", "").isalnum():
            yield f"{whose} at commit {name}"


def _again(command: Sequence[str]) -> list[str] | None:
    """A recorded command without its place; None where it was no command of worldsize, or nothing to be pasted."""
    if len(command) < 2 or Path(command[0]).name != "worldsize" or not all(word.isprintable() for word in command):
        return None
    kept, skip = ["worldsize"], 0
    for word in command[1:]:
        name, has_value, _ = word.partition("=")
        if skip:
            skip -= 1
        elif name in OWN_FLAGS:
            skip = 0 if has_value else OWN_FLAGS[name]
        else:
            kept.append(word)
    return kept


def _flags(settings: CompareSettings) -> list[str]:
    assert settings.fail_above is not None
    flags = ["--fail-above", f"{100 * settings.fail_above:g}%"]
    flags += ["--strict"] if settings.strict else []
    return flags + ([] if settings.judge_by == "auto" else ["--judge-by", settings.judge_by])
