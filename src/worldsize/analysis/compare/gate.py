"""The gate of continuous integration: whether a cell is slower by more than is allowed, proved or not known.

Where it is not known: how many runs would settle it, and the commands that make and compare them.
"""

import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from scipy.special import ndtri

from worldsize.analysis.compare.bases import moved_with_the_machine
from worldsize.analysis.compare.over_runs import PROOF, STEP_ALARM, chance_below, spread
from worldsize.analysis.compare.verdicts import alarm_shares, basis, loss_is_the_baselines, other
from worldsize.analysis.numbers import percent_text
from worldsize.config import CompareSettings
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Finding, Gate, Outcome, Side, Weight
from worldsize.results.records import Estimate

FIRST_RUNS = 3
"""On each side, where the spread between runs is not known yet."""
MAX_RUNS = 20
"""More runs than these nobody makes for a gate."""
POWER = 0.8
"""Chance that so many runs settle it, if the true ratio is the one that was seen."""
LONGER_HELPS = 0.5
"""Share of the variance between runs that their own blocks leave open, from which on longer runs are advised too."""
OWN_FLAGS = {"--out": 1, "-o": 1, "--resume": 0, "--json": 0, "--open": 0}
"""Flags of a recorded command that another run must not have, with how many words follow each."""
ORDER: tuple[Weight, ...] = ("fails", "not known", "note")


def settling(record: ComparisonRecord, settings: CompareSettings, gate: Gate) -> list[str]:
    """Lines to paste: more runs of either side, then the comparison of all; or why no number of runs would do."""
    codes = {finding.code for finding in gate.findings if finding.weight == "not known"}
    if not codes & {"one-run", "maybe-slower", "not-ruled-out"}:
        return ["More runs would not settle it: give runs of the same work, from the same kind of machine."]
    needed = runs_needed(record.cells, 1 + gate.fail_above, strict=gate.strict)
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
    return [
        *_in_turn(record),
        *_longer(record),
        *lines,
        shlex.join(["worldsize", "compare", *paths, *_flags(settings)]),
    ]


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


def _in_turn(record: ComparisonRecord) -> list[str]:
    """A line where the machine was not the same for both sides: more of either by itself would not show the code."""
    if not any(moved_with_the_machine(cell) for cell in record.cells):
        return []
    return ["# The short computation beside the steps took longer on one side: make runs of both in turn (A B A B …)."]


def _more(side: Side, needed: int) -> list[str]:
    """Paths of the runs that a side lacks, beside its first; several given runs are not counted twice."""
    first = side.path.split(",")[0]
    base = first.removesuffix(".json").rstrip("/")
    return [f"{base}-{place}" for place in range(len(side.runs) + 1, needed + 1)]


def _commands(letter: str, side: Side, paths: list[str]) -> Iterator[str]:
    """The commands that make them: as the first run was made, by its commit."""
    provenance = side.runs[0].provenance
    name = provenance.commit[:12] if provenance.commit else ""
    commit = f" at commit {name}" if name.isalnum() else ""
    command = _again(provenance.command)
    if command is None:
        yield f"# {letter}: {len(paths)} more run(s){commit}, made as the first, in {', '.join(paths)}"
        return
    yield f"# {letter}{commit}:"
    for path in paths:
        yield shlex.join([*command, "--out", path])


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


def judge(record: ComparisonRecord, settings: CompareSettings) -> Gate | None:
    """Judge a comparison by `fail_above`; None where no gate was asked for.

    It fails if a cell is significantly slower, over all cells at once, and by more than the limit as far as was seen
    (method.md §11); if one had numbers in A and has none in B; or if nothing can be judged. It is not known with less
    than two runs a side, and where what was seen lies beyond the limit and may be chance. Otherwise it passes; with
    `strict` only if each cell is proved not to be slower by more.
    """
    if settings.fail_above is None:
        return None
    findings = [*_of_the_plan(record), *_Limit(record, settings, 1 + settings.fail_above).findings()]
    findings.sort(key=lambda finding: ORDER.index(finding.weight))
    weights = {finding.weight for finding in findings}
    outcome: Outcome = "failed" if "fails" in weights else "not known" if "not known" in weights else "passed"
    gate = Gate(
        fail_above=settings.fail_above,
        strict=settings.strict,
        outcome=outcome,
        failed=outcome == "failed" or (settings.strict and outcome == "not known"),
        findings=findings,
    )
    if outcome == "not known":
        gate.settle = settling(record, settings, gate)
    return gate


def _of_the_plan(record: ComparisonRecord) -> Iterator[Finding]:
    """What is no matter of chance: cells that are gone, failed or cut short, and whether anything can be judged."""
    for cell in record.cells:
        if cell.lost:
            some = "" if not cell.measured[1] else " in some runs"
            message = f"no numbers any more{some} ({cell.remark})"
            yield Finding(code="failed", cell=cell.id, message=message, weight="fails")
        elif cell.cut_short and all(cell.measured):
            message = f"complete in A, and did not end in B ({cell.remark})"
            yield Finding(code="cut-short", cell=cell.id, message=message, weight="fails")
    for lone in record.lone_cells:
        if lone.run == "A" and lone.measured and not lone.sweep:
            yield Finding(code="missing", cell=lone.id, message="not in the plan of B", weight="fails")
    if all(cell.judged is None for cell in record.cells):
        yield Finding(code="nothing-judged", message=record.verdict.rstrip("."), weight="fails")


class _Limit:
    """The step times of all cells against the limit."""

    def __init__(self, record: ComparisonRecord, settings: CompareSettings, limit: float) -> None:
        self.record, self.settings, self.limit = record, settings, limit
        self.cells = {cell.id: cell for cell in record.cells}

    def findings(self) -> Iterator[Finding]:
        """Of each cell that is, or may be, slower by more than the limit; of what is not ruled out, together."""
        unknown, open_ones = [], []
        for cell in self.record.cells:
            if not all(cell.measured):
                continue
            if cell.judged is None:
                yield self._not_judged(cell)
            elif self._foreign(cell):
                yield from self._elsewhere(cell, cell.judged)
            elif cell.judged_error is None:
                unknown.append(cell)
            elif cell.judged.value > self.limit:
                yield self._slower(cell, cell.judged)
            elif chance_below(cell.judged, cell.judged_error, self.limit) > PROOF:
                open_ones.append(cell)
        yield from self._one_run(unknown)
        yield from self._not_ruled_out(open_ones)

    def _foreign(self, cell: CellComparison) -> bool:
        """Whether a cell's ratio compares two kinds of machine as well, and nobody asked for that."""
        return cell.judged_by == "plain" and not (self.record.same_machine or self.settings.judge_by == "plain")

    def _not_judged(self, cell: CellComparison) -> Finding:
        kind = "" if self.settings.judge_by == "auto" else f"{self.settings.judge_by} "
        work = f"not the same work ({other(cell.other_work)})" if cell.other_work else f"no {kind}ratio"
        return Finding(code="not-judged", cell=cell.id, message=f"{work}, so not judged", weight="not known")

    def _elsewhere(self, cell: CellComparison, step: Estimate) -> Iterator[Finding]:
        if step.value > self.limit:
            message = f"{_slower_by(cell, step)}, but on another machine: it may be the cause as well as the code"
            yield Finding(code="other-machine", cell=cell.id, message=message, weight="not known")
        elif self.settings.strict:
            message = "plain step times of different machines prove nothing"
            yield Finding(code="other-machine", cell=cell.id, message=message, weight="not known")

    def _slower(self, cell: CellComparison, step: Estimate) -> Finding:
        by = _slower_by(cell, step)
        if cell.verdict == "slower":
            return Finding(code="slower", cell=cell.id, message=by, weight="fails")
        why = "but no more than runs of the same commit may differ by"
        if moved_with_the_machine(cell):
            why = "but so is a short computation that is none of your code: the machine may be the cause"
        if loss_is_the_baselines(cell, self.cells):
            why = "but its baseline cell became faster: by itself it may be no slower"
        return Finding(code="maybe-slower", cell=cell.id, message=f"{by}, {why}", weight="not known")

    def _one_run(self, cells: list[CellComparison]) -> Iterator[Finding]:
        """What one run cannot know, and the largest slowdown that may be none."""
        steps = [(cell.judged.value, cell) for cell in cells if cell.judged is not None]
        if not steps:
            return
        value, cell = max(steps, key=lambda each: each[0])
        which = "" if len(cells) == len(self.record.cells) else f" in {len(cells)} of {len(self.record.cells)} cells"
        message = (
            f"less than two runs a side{which}: how far two runs of the same commit lie apart is not known, so no "
            "slowdown is certain, and none is ruled out"
        )
        if value > self.limit and cell.judged is not None:
            message += f"; the largest: {cell.id}, {_slower_by(cell, cell.judged)}"
        yield Finding(code="one-run", message=message, weight="not known")

    def _not_ruled_out(self, cells: list[CellComparison]) -> Iterator[Finding]:
        """That nothing was seen is no proof where the intervals reach beyond the limit."""
        highs = [cell.judged.high for cell in cells if cell.judged is not None and cell.judged.high is not None]
        if highs:
            message = (
                f"a slowdown by more than {percent_text(self.limit - 1)} is not ruled out in {len(cells)} of "
                f"{len(self.record.cells)} cells, up to {percent_text(max(highs) - 1)}"
            )
            weight: Weight = "not known" if self.settings.strict else "note"
            yield Finding(code="not-ruled-out", message=message, weight=weight)


def _slower_by(cell: CellComparison, step: Estimate) -> str:
    """How much longer a step takes, with the ends of the interval, and by what."""
    value = percent_text(step.value - 1)
    ends = (
        ""
        if step.low is None or step.high is None
        else f" [{percent_text(step.low - 1)}, {percent_text(step.high - 1)}]"
    )
    return f"slower by {value}{ends} ({basis(cell)})"
