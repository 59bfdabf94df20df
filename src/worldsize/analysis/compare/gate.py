"""The gate of continuous integration: whether a cell is slower by more than is allowed, proved or not known."""

from collections.abc import Iterator

from worldsize.analysis.compare.over_runs import PROOF, chance_below
from worldsize.analysis.compare.settling import settling
from worldsize.analysis.compare.verdicts import basis, change_of_baseline, loss_is_the_baselines, other
from worldsize.analysis.numbers import estimate_text, percent_text
from worldsize.analysis.statistics import includes
from worldsize.config import CompareSettings
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Finding, Gate, Outcome, Weight
from worldsize.results.records import Estimate

ORDER: tuple[Weight, ...] = ("fails", "not known", "note")


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
            elif found := self._disputed(cell):
                yield found
            elif cell.judged.value > self.limit:
                yield self._slower(cell, cell.judged)
            elif chance_below(cell.judged, cell.judged_error, self.limit) > PROOF:
                open_ones.append(cell)
        yield from self._one_run(unknown)
        yield from self._not_ruled_out(open_ones)

    def _foreign(self, cell: CellComparison) -> bool:
        """Whether a cell's ratio compares two kinds of machine as well, without having been asked to."""
        return cell.judged_by != "relative" and not (self.record.same_machine or self.settings.judge_by == "plain")

    def _not_judged(self, cell: CellComparison) -> Finding:
        kind = "" if self.settings.judge_by == "auto" else f"{self.settings.judge_by} "
        work = f"not the same work ({other(cell.other_work)})" if cell.other_work else f"no {kind}ratio"
        return Finding(code="not-judged", cell=cell.id, message=f"{work}, so not judged", weight="not known")

    def _elsewhere(self, cell: CellComparison, step: Estimate) -> Iterator[Finding]:
        if step.value > self.limit:
            message = (
                f"{_slower_by(step, basis(cell))}, but on another machine: it may be the cause as well as the code"
            )
            yield Finding(code="other-machine", cell=cell.id, message=message, weight="not known")
        elif self.settings.strict:
            message = "step times of different machines prove nothing"
            yield Finding(code="other-machine", cell=cell.id, message=message, weight="not known")

    def _disputed(self, cell: CellComparison) -> Finding | None:
        """Where plain and normalised step times lie on either side of the limit, and the machine may be why."""
        if cell.judged_by == "relative":
            return self._with_its_baseline(cell)
        plain, normalised, machine = cell.plain, cell.normalised, cell.reference
        if self.settings.judge_by == "plain":
            return None
        if plain is None or normalised is None or machine is None:
            return None
        beside = f"the short computation beside the steps, none of your code, took × {estimate_text(machine)} as long"
        if plain.value > self.limit >= normalised.value:
            message = (
                f"{_slower_by(plain, 'plain step times')}; {beside}: the machine may be why, or what ran beside it"
            )
        elif normalised.value > self.limit >= plain.value and cell.reference_moved:
            message = f"{_slower_by(normalised, 'normalised step times')}; {beside}: a faster machine may hide it"
        else:
            return None
        return Finding(code="machine", cell=cell.id, message=message, weight="not known")

    def _with_its_baseline(self, cell: CellComparison) -> Finding | None:
        """Where a relative ratio is on one side of the limit, and with what its baseline lost or gained on the other.

        Not where the baseline cell is beyond the limit by itself, which is said of it, nor where it may be as it was:
        what only varies in it would hide what relative ratios show.
        """
        base, ratio = change_of_baseline(cell, self.cells), cell.judged
        if base is None or ratio is None or not self.record.same_machine:
            return None
        if base.value > self.limit or includes(base, 1):
            return None
        whole = ratio.value * base.value
        if (whole > self.limit) == (ratio.value > self.limit):
            return None
        why = f"and its baseline cell took × {estimate_text(base)} as long: together more than the limit"
        if whole <= self.limit:
            why = f"but its baseline cell became faster (× {estimate_text(base)}): by itself it may be within the limit"
        message = f"{_slower_by(ratio, basis(cell))}, {why}"
        return Finding(code="baseline", cell=cell.id, message=message, weight="not known")

    def _slower(self, cell: CellComparison, step: Estimate) -> Finding:
        by = _slower_by(step, basis(cell))
        if cell.verdict == "slower":
            return Finding(code="slower", cell=cell.id, message=by, weight="fails")
        why = "but no more than runs of the same commit may differ by"
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
            message += f"; the largest: {cell.id}, {_slower_by(cell.judged, basis(cell))}"
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


def _slower_by(step: Estimate, what: str) -> str:
    """How much longer a step takes, with the ends of the interval, and by what that is said."""
    value = percent_text(step.value - 1)
    ends = (
        ""
        if step.low is None or step.high is None
        else f" [{percent_text(step.low - 1)}, {percent_text(step.high - 1)}]"
    )
    return f"slower by {value}{ends} ({what})"
