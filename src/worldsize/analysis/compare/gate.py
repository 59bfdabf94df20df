"""The gate of continuous integration: which cells are slower by more than is allowed, and with what certainty."""

from collections.abc import Iterator

from worldsize.analysis.compare.words import basis, other
from worldsize.analysis.numbers import percent_text
from worldsize.config import CompareSettings
from worldsize.results.comparison_records import CellComparison, ComparisonRecord, Finding, Gate
from worldsize.results.records import Estimate


def judge(record: ComparisonRecord, settings: CompareSettings) -> Gate | None:
    """Judge a comparison by `fail_above`; None where no gate was asked for.

    A cell fails if the whole interval of its step time's ratio lies above 1 + `fail_above`, or if it had numbers in
    A and has none in B. What lies above by its value alone is a maybe, and so is a plain ratio between different
    machines, unless plain ratios were asked for; `strict` fails on these too. A gate that can judge nothing fails.
    """
    if settings.fail_above is None:
        return None
    findings = [
        *_of_cells(record, settings.fail_above, settings),
        *_of_the_whole(record, settings.fail_above, settings),
    ]
    failed = any(finding.fails for finding in findings)
    findings.sort(key=lambda finding: not finding.fails)
    return Gate(fail_above=settings.fail_above, strict=settings.strict, failed=failed, findings=findings)


def _of_cells(record: ComparisonRecord, limit: float, settings: CompareSettings) -> Iterator[Finding]:
    baselines = {cell.baseline for cell in record.cells}
    for cell in record.cells:
        if cell.cut_short and all(cell.measured):
            message = f"complete in A, and did not end in B ({cell.remark})"
            yield Finding(code="cut-short", cell=cell.id, message=message, fails=True)
        if not all(cell.measured):
            if cell.measured[0]:
                yield Finding(code="failed", cell=cell.id, message=f"no numbers any more ({cell.remark})", fails=True)
        elif cell.judged is None and not cell.other_work and cell.id in baselines:
            continue  # only relative ratios are asked for, and its own is 1
        elif cell.judged is None:
            work = f"not the same work ({other(cell.other_work)})" if cell.other_work else "no relative ratio"
            fails = settings.strict and bool(cell.other_work)
            yield Finding(code="not-judged", cell=cell.id, message=f"{work}, so not judged", fails=fails)
        elif cell.judged.value > 1 + limit:
            foreign = _foreign(cell, record, settings)
            yield _slower(cell, cell.judged, limit, foreign=foreign, strict=settings.strict)


def _foreign(cell: CellComparison, record: ComparisonRecord, settings: CompareSettings) -> bool:
    """Whether a cell's ratio compares two machines as well, and nobody asked for that."""
    return cell.judged_by == "plain" and not (record.same_machine or settings.judge_by == "plain")


def _slower(cell: CellComparison, step: Estimate, limit: float, *, foreign: bool, strict: bool) -> Finding:
    """A cell whose ratio lies above the limit, if only by its value."""
    by = f"slower by {_span(step)} ({basis(cell)})"
    if foreign:
        message = f"{by}, but on another machine"
        return Finding(code="other-machine", cell=cell.id, message=message, fails=strict)
    if step.low is not None and step.low > 1 + limit:
        return Finding(code="slower", cell=cell.id, message=by, fails=True)
    doubt = "there is no interval" if step.low is None else f"not certainly by more than {percent_text(limit)}"
    return Finding(code="maybe-slower", cell=cell.id, message=f"{by}, but {doubt}", fails=strict)


def _span(step: Estimate) -> str:
    """How much longer a step takes, with the ends of the interval."""
    value = percent_text(step.value - 1)
    if step.low is None or step.high is None:
        return value
    return f"{value} [{percent_text(step.low - 1)}, {percent_text(step.high - 1)}]"


def _of_the_whole(record: ComparisonRecord, limit: float, settings: CompareSettings) -> Iterator[Finding]:
    for lone in record.lone_cells:
        if lone.run == "A" and lone.measured and not lone.sweep:
            yield Finding(code="missing", cell=lone.id, message="not in the plan of B", fails=True)
    judged = [(cell, cell.judged) for cell in record.cells if cell.judged is not None]
    if not judged:
        yield Finding(code="nothing-judged", message=record.verdict.rstrip("."), fails=True)
    elif all(step.low is None or _foreign(cell, record, settings) for cell, step in judged):
        why = (
            "no cell has an interval" if record.same_machine else "the machines differ and no baseline cell cancels it"
        )
        message = f"no slowdown can be certain here, whatever it is: {why}"
        yield Finding(code="nothing-certain", message=message, fails=settings.strict)
    else:
        yield from _not_ruled_out(
            [(cell, step) for cell, step in judged if not _foreign(cell, record, settings)], limit
        )


def _not_ruled_out(judged: list[tuple[CellComparison, Estimate]], limit: float) -> Iterator[Finding]:
    """That nothing was seen is no proof where the intervals reach beyond the limit."""
    open_ones = [step.high for _, step in judged if step.high is not None and step.value <= 1 + limit < step.high]
    if open_ones:
        message = (
            f"a slowdown by more than {percent_text(limit)} is not ruled out in {len(open_ones)} of {len(judged)} "
            f"cells, up to {percent_text(max(open_ones) - 1)}: time more steps in both runs"
        )
        yield Finding(code="not-ruled-out", message=message, fails=False)
