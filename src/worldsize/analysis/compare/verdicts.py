"""Which cells and quantities are told apart, all at once: equal sides give one alarm in twenty (method.md §11)."""

from collections.abc import Sequence

from worldsize.analysis.compare.over_runs import ALARM, STEP_ALARM, chance_differs, holm
from worldsize.analysis.compare.quantities import OTHERS, Draft
from worldsize.config import JudgeBy
from worldsize.results.comparison_records import CellComparison, Direction, JudgedBy, Quantity, Verdict
from worldsize.results.records import Estimate

PLAIN_ROWS = {"step_s": 1, "samples_per_s": -1}
RELATIVE_ROWS = {"scaled_speedup": -1, "strong_speedup": -1, "efficiency": -1}
"""Quantities whose ratio is that of the step times (1) or 1 ÷ it (−1)."""


def tell_apart(drafts: Sequence[Draft], judge_by: JudgeBy, *, alike: bool) -> None:
    """Set what each cell is judged by, its verdict, and the direction of each quantity.

    `alike`: whether all runs are from one kind of machine. Where less than two runs a side have a cell, nothing is
    known of what differs from run to run, and nothing is called a change.
    """
    cells = {draft.cell.id: draft.cell for draft in drafts}
    baselines = {draft.cell.baseline for draft in drafts}
    if judge_by == "auto" and alike and _steadier_plain(drafts):
        judge_by = "plain"
    for cell in cells.values():
        if not cell.other_work:
            cell.judged_by = _judged_by(cell, judge_by, is_baseline=cell.id in baselines)
    apart = _told_apart(cells)
    for draft in drafts:
        draft.cell.verdict = _verdict(draft.cell, cells, apart, alike=alike)
    _directions(drafts)


def plain_of_baseline(cell: CellComparison, cells: dict[str, CellComparison]) -> Estimate | None:
    """How the baseline cell itself changed, for a cell that is judged relative to it."""
    base = cells.get(cell.baseline) if cell.baseline is not None and cell.judged_by == "relative" else None
    return base.plain if base is not None else None


def gain_is_the_baselines(cell: CellComparison, cells: dict[str, CellComparison]) -> bool:
    """Whether a relative gain may be no more than what the baseline cell lost, by the ends of both intervals."""
    base, ratio = plain_of_baseline(cell, cells), cell.judged
    if base is None or ratio is None or ratio.high is None:
        return False
    return ratio.value < 1 < base.value and (base.high is None or ratio.high * base.high >= 1)


def loss_is_the_baselines(cell: CellComparison, cells: dict[str, CellComparison]) -> bool:
    """Whether a relative loss is, as far as was seen, no more than what the baseline cell gained."""
    base, ratio = plain_of_baseline(cell, cells), cell.judged
    if base is None or ratio is None or ratio.low is None:
        return False
    return base.value < 1 < ratio.value and ratio.low * base.value <= 1


def _judged_by(cell: CellComparison, judge_by: JudgeBy, *, is_baseline: bool) -> JudgedBy | None:
    """A baseline cell is judged like any other: by plain step times, as it has no others."""
    if not all(cell.measured) or cell.plain is None:
        return None
    if judge_by == "plain" or (cell.relative is None and (judge_by == "auto" or is_baseline)):
        return "plain"
    return "relative" if cell.relative is not None else None


def _steadier_plain(drafts: Sequence[Draft]) -> bool:
    """Whether plain step times differ less from run to run than relative ones, over the cells that have both.

    What a machine does to all cells of a run is in the plain ones, what it does to the baseline cell alone in the
    relative ones. Spreads within a side say nothing of the difference between sides: the choice favours no verdict.
    """
    both = [draft.errors for draft in drafts if {"plain", "relative"} <= draft.errors.keys()]
    plain, relative = (sum(each[name].standard_error ** 2 for each in both) for name in ("plain", "relative"))
    return bool(both) and plain < relative


def _told_apart(cells: dict[str, CellComparison]) -> set[str]:
    chances = {}
    for name, cell in cells.items():
        if cell.judged is not None and cell.judged_error is not None:
            chances[name] = chance_differs(cell.judged, cell.judged_error)
    return holm(chances, STEP_ALARM)


def _verdict(cell: CellComparison, cells: dict[str, CellComparison], apart: set[str], *, alike: bool) -> Verdict:
    if not all(cell.measured):
        return "no numbers"
    if cell.judged is None:
        return "not judged"
    if cell.judged_error is None:
        return "not known"
    if cell.id not in apart:
        return "indistinguishable"
    if cell.judged.value < 1:
        return "indistinguishable" if gain_is_the_baselines(cell, cells) else "faster"
    return "indistinguishable" if alike and loss_is_the_baselines(cell, cells) else "slower"


def _directions(drafts: Sequence[Draft]) -> None:
    """Of all quantities of all cells that are judged; Holm, not a rate of false discoveries: each row is acted upon."""
    chances = {
        (draft.cell.id, name): chance_differs(draft.ratios[name], error)
        for draft in drafts
        for name, error in draft.errors.items()
        if name in OTHERS and not draft.cell.other_work
    }
    apart = holm(chances, ALARM - STEP_ALARM)
    for draft in drafts:
        if draft.cell.other_work or not all(draft.cell.measured):
            continue
        for quantity in draft.cell.quantities:
            if quantity.name in OTHERS:
                known, told = quantity.name in draft.errors, (draft.cell.id, quantity.name) in apart
                quantity.direction = _direction(quantity, known=known, told=told)
            else:
                quantity.direction = _as_the_cell(quantity, draft.cell)


def _direction(quantity: Quantity, *, known: bool, told: bool) -> Direction | None:
    if quantity.ratio is None or quantity.old == quantity.new:
        return "same" if quantity.old == quantity.new is not None else None
    if not known:
        return "not known"
    if not told:
        return "indistinguishable"
    return "larger" if quantity.ratio.value > 1 else "smaller"


def _as_the_cell(quantity: Quantity, cell: CellComparison) -> Direction | None:
    """What the verdict is taken from has its direction; what it is not taken from has none of its own."""
    sign = (PLAIN_ROWS if cell.judged_by == "plain" else RELATIVE_ROWS).get(quantity.name)
    if sign is None or cell.judged_by is None:
        return None
    if cell.verdict in ("slower", "faster"):
        return "larger" if (cell.verdict == "slower") == (sign > 0) else "smaller"
    return "not known" if cell.verdict == "not known" else "indistinguishable"
