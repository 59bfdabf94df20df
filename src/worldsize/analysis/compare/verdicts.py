"""Which cells and quantities differ significantly, all at once; the verdict in words, with what its ratios leave out.

Equal sides give one alarm in twenty (method.md §11).
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from worldsize.analysis.compare.over_runs import ALARM, STEP_ALARM, chance_differs, holm
from worldsize.analysis.compare.quantities import OTHERS, PART_VALUES, Draft
from worldsize.analysis.numbers import estimate_text
from worldsize.config import JudgeBy
from worldsize.results.comparison_records import (
    CellComparison,
    ComparisonRecord,
    Direction,
    JudgedBy,
    Quantity,
    RunError,
    Verdict,
)
from worldsize.results.records import Estimate

ROWS: dict[JudgedBy, dict[str, int]] = {
    "plain": {"step_s": 1, "samples_per_s": -1},
    "relative": {"scaled_speedup": -1, "strong_speedup": -1, "efficiency": -1},
    "normalised": {"normalised_step": 1},
}
"""Quantities whose ratio is that of the step times (1) or 1 ÷ it (−1)."""
JUDGED: tuple[Verdict, ...] = ("slower", "faster", "indistinguishable", "not known")
LACKS: dict[JudgeBy, str] = {
    "relative": "no cell of one worker, timed in turn with the same threads, is in all runs",
    "normalised": "the short computation beside the steps was not timed in all runs",
}
NO_TIMES = "no common cell has step times above 0 on both sides"


def set_verdicts(drafts: Sequence[Draft], *, same_machine: bool) -> None:
    """Set the verdict of each cell by what it is judged by (bases.py), and the direction of each quantity.

    `same_machine`: whether all runs are from one kind of machine. Where less than two runs a side have a cell, nothing
    is known of what differs from run to run, and nothing is called a change.
    """
    cells = {draft.cell.id: draft.cell for draft in drafts}
    apart = _distinguishable(cells)
    for draft in drafts:
        draft.cell.verdict = _verdict(draft.cell, cells, apart, same_machine=same_machine)
    _directions(drafts)


def change_of_baseline(cell: CellComparison, cells: dict[str, CellComparison]) -> Estimate | None:
    """How the baseline cell itself changed, for a cell that is judged relative to it."""
    base = cells.get(cell.baseline) if cell.baseline is not None and cell.judged_by == "relative" else None
    if base is None:
        return None
    return base.normalised if base.reference_moved and base.normalised is not None else base.judged or base.plain


def gain_is_the_baselines(cell: CellComparison, cells: dict[str, CellComparison]) -> bool:
    """Whether a relative gain may be no more than what the baseline cell lost, by the ends of both intervals."""
    base, ratio = change_of_baseline(cell, cells), cell.judged
    if base is None or ratio is None or ratio.high is None:
        return False
    return ratio.value < 1 < base.value and (base.high is None or ratio.high * base.high >= 1)


def loss_is_the_baselines(cell: CellComparison, cells: dict[str, CellComparison]) -> bool:
    """Whether a relative loss is, as far as was seen, no more than what the baseline cell gained."""
    base, ratio = change_of_baseline(cell, cells), cell.judged
    if base is None or ratio is None or ratio.low is None:
        return False
    return base.value < 1 < ratio.value and ratio.low * base.value <= 1


def alarm_shares(cells: Collection[CellComparison]) -> dict[str, float]:
    """How much of the chance of a false alarm of any step time the test of each judged cell has; they add up to 1.

    What slows all cells down cancels in relative ratios: the baselines alone can show it, so they have half. With ten
    cells that share 0.9 of 2 % between runs, three runs a side, 10 % in all of them are found in 93 % in place of 65;
    10 % in one of nine relative cells in as many as before, 100 %, and where they share 0.5 in 96 in place of 98.
    """
    judged = [cell.id for cell in cells if cell.judged is not None and cell.judged_error is not None]
    relative = [cell for cell in cells if cell.id in judged and cell.judged_by == "relative"]
    baselines = _baselines(relative) & set(judged)
    if not baselines:
        return dict.fromkeys(judged, 1 / max(1, len(judged)))
    rest = len(judged) - len(baselines)
    return {name: 0.5 / (len(baselines) if name in baselines else rest) for name in judged}


def _baselines(cells: Iterable[CellComparison]) -> set[str]:
    return {cell.baseline for cell in cells if cell.baseline is not None}


def _distinguishable(cells: dict[str, CellComparison]) -> set[str]:
    chances = {}
    for name, cell in cells.items():
        if cell.judged is not None and cell.judged_error is not None:
            chances[name] = _chance(cell, cell.judged, cell.judged_error)
    return holm(chances, STEP_ALARM, alarm_shares(cells.values()))


def _chance(cell: CellComparison, judged: Estimate, error: RunError) -> float:
    """The chance of such a ratio between equal sides; where the machine moved, of plain and normalised ones both."""
    if not cell.reference_moved or cell.judged_by == "relative" or cell.plain is None or cell.normalised is None:
        return chance_differs(judged, error)
    if (cell.plain.value > 1) != (cell.normalised.value > 1):
        return 1.0
    both = ((cell.plain, cell.plain_error), (cell.normalised, cell.normalised_error))
    return max(chance_differs(ratio, known) for ratio, known in both if known is not None)


def _verdict(cell: CellComparison, cells: dict[str, CellComparison], apart: set[str], *, same_machine: bool) -> Verdict:
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
    return "indistinguishable" if same_machine and loss_is_the_baselines(cell, cells) else "slower"


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
        disputed = draft.cell.reference_moved and draft.cell.verdict not in ("slower", "faster")
        for quantity in draft.cell.quantities:
            if disputed and quantity.name in PART_VALUES:
                quantity.direction = "indistinguishable"  # of the machine
            elif quantity.name in OTHERS:
                significant = (draft.cell.id, quantity.name) in apart
                ratio, known = draft.ratios.get(quantity.name), quantity.name in draft.errors
                quantity.direction = _direction(quantity, ratio, known=known, significant=significant)
            else:
                quantity.direction = _as_the_cell(quantity, draft.cell)


def _direction(quantity: Quantity, ratio: Estimate | None, *, known: bool, significant: bool) -> Direction | None:
    """By the ratio that was tested, which is not shown where one side has none of the quantity."""
    if ratio is None or quantity.old == quantity.new:
        return "same" if quantity.old == quantity.new is not None else None
    if not known:
        return "not known"
    if not significant:
        return "indistinguishable"
    return "larger" if ratio.value > 1 else "smaller"


def _as_the_cell(quantity: Quantity, cell: CellComparison) -> Direction | None:
    """What the verdict is taken from has its direction; what it is not taken from has none of its own."""
    sign = None if cell.judged_by is None else ROWS[cell.judged_by].get(quantity.name)
    if sign is None:
        return None
    if cell.verdict in ("slower", "faster"):
        return "larger" if (cell.verdict == "slower") == (sign > 0) else "smaller"
    return "not known" if cell.verdict == "not known" else "indistinguishable"


def comparison_verdict(record: ComparisonRecord, judge_by: JudgeBy) -> str:
    """How many cells became slower or faster, and the largest significant change."""
    judged = [cell for cell in record.cells if cell.judged is not None]
    if not judged:
        return f"Nothing can be judged: {_why_nothing(record, judge_by)}."
    counts = Counter(cell.verdict for cell in judged)
    counted = ", ".join(f"{counts[word]} {_in_words(word)}" for word in JUDGED if counts[word])
    text = f"B against A, step times of {_cells(len(judged))}: {counted}."
    rest = len(record.cells) - len(judged)
    if rest:
        text += f" {_cells(rest)} of both sides {'is' if rest == 1 else 'are'} not judged."
    extremes = [_extreme(judged, "slower"), _extreme(judged, "faster")]
    extremes = extremes if any(extremes) else [_largest_unknown(judged)]
    return " ".join([text, *filter(None, extremes)])


def other(work: list[str]) -> str:
    """Why steps are not the same work, in words."""
    return ", ".join(f"other {word}" for word in work)


def basis(cell: CellComparison) -> str:
    """What a cell's verdict is taken from."""
    return f"relative to {cell.baseline}" if cell.judged_by == "relative" else f"{cell.judged_by} step times"


def _extreme(cells: list[CellComparison], word: Verdict) -> str:
    """The cell that changed most in one direction; empty if none did for certain."""
    found = [(cell.judged.value, cell) for cell in cells if cell.verdict == word and cell.judged is not None]
    if not found:
        return ""
    pick = max if word == "slower" else min
    _, cell = pick(found, key=lambda each: each[0])
    assert cell.judged is not None
    largest = "Largest slowdown" if word == "slower" else "Largest gain"
    return f"{largest}: {cell.id}, step time × {estimate_text(cell.judged)} ({basis(cell)})."


def _largest_unknown(cells: list[CellComparison]) -> str:
    """The cell that differs most where too few runs make nothing significant."""
    found = [(abs(math.log(cell.judged.value)), cell) for cell in cells if cell.verdict == "not known" and cell.judged]
    if not found:
        return ""
    _, cell = max(found, key=lambda each: each[0])
    assert cell.judged is not None
    return f"Largest difference: {cell.id}, step time × {estimate_text(cell.judged)} ({basis(cell)})."


def _why_nothing(record: ComparisonRecord, judge_by: JudgeBy) -> str:
    if not record.cells:
        return "the two sides have no cell in common"
    work = sorted({word for cell in record.cells for word in cell.other_work})
    if work and any(all(cell.measured) for cell in record.cells):
        return f"no common cell is the same work ({other(work)})"
    if any(all(cell.measured) for cell in record.cells):
        return f"{LACKS[judge_by]}, and only {judge_by} ratios were asked for" if judge_by in LACKS else NO_TIMES
    return "no common cell has numbers on both sides"


def _in_words(word: Verdict) -> str:
    return "not known, for want of runs" if word == "not known" else word


def _cells(count: int) -> str:
    return "1 cell" if count == 1 else f"{count} cells"
