"""What the step times of two sides are judged by: as they are, over one worker's, or normalised (method.md §11).

Normalised: over the short computation that each rank times beside its steps. It is no code of the user's, so what it
takes longer in a run is what the machine gave less in that run.
"""

from collections.abc import Collection, Sequence

from worldsize.analysis.compare.over_runs import chance_differs, holm
from worldsize.analysis.compare.quantities import Draft
from worldsize.config import JudgeBy
from worldsize.results.comparison_records import Area, CellComparison, Change, JudgedBy

MOVED = 0.01
"""Chance that the short computation is said to differ between sides on a machine that is the same for both."""
WORTH: dict[JudgedBy, float] = {"plain": 1.0, "normalised": 2.0}
"""The variance, ÷ that of relative ratios, up to which these are preferred. Relative ratios do not show what slows all
cells down, and normalised ones do, without the drift that makes plain ones useless."""
OTHER_COMPUTATION: tuple[Area, ...] = ("software", "machine", "environment", "placement")
"""Areas of changes that may make the short computation another one; what it is divided by must be the same."""
HARMLESS = {"commit of worldsize", "host", "load at the start", "network interfaces"}
"""What differs there and does not; the machine itself is asked by `same_machine`."""


def set_bases(drafts: Sequence[Draft], judge_by: JudgeBy, changes: Collection[Change], *, same_machine: bool) -> None:
    """Set what each cell is judged by, and whether the short computation moved; other work is not judged.

    `same_machine`: whether all runs are from one kind of machine. With `auto` that is whichever differs least from run
    to run there, else the relative one. Spreads within a side say nothing of the difference between sides: the choice
    favours no verdict.
    """
    if judge_by != "plain":  # then plain times count as they are, whatever the machine did
        _mark_moved(drafts)
    baselines = {draft.cell.baseline for draft in drafts if draft.cell.baseline is not None}
    base: JudgedBy = "plain"
    over_a_cell = judge_by == "relative"
    if judge_by == "auto":
        if same_machine and _may_normalise(drafts, changes) and _steadier(drafts, "normalised", "plain"):
            base = "normalised"
        over_a_cell = not (same_machine and _steadier(drafts, base, "relative", WORTH[base]))
    for draft in drafts:
        cell = draft.cell
        if cell.other_work or not all(cell.measured) or cell.plain is None:
            continue
        if over_a_cell and cell.relative is not None:
            cell.judged_by = "relative"
        elif judge_by == "normalised":
            cell.judged_by = "normalised" if cell.normalised is not None else None
        elif judge_by != "relative" or cell.id in baselines:
            # A baseline cell is judged like any other: it has no relative times, so by its own.
            cell.judged_by = base if cell.normalised is not None else "plain"


def moved_with_the_machine(cell: CellComparison) -> bool:
    """Whether a plain ratio may be no more than what the machine did: the short computation moved likewise."""
    machine, left = cell.reference, cell.normalised
    if cell.judged_by != "plain" or not cell.reference_moved or machine is None or left is None or cell.plain is None:
        return False
    if (cell.plain.value > 1) != (machine.value > 1):
        return False
    end = left.low if machine.value > 1 else left.high
    return end is None or (end <= 1 if machine.value > 1 else end >= 1)


def _may_normalise(drafts: Sequence[Draft], changes: Collection[Change]) -> bool:
    """Whether the short computation is the same on both sides, and took as long as far as is known.

    If what runs beside the steps in B slowed it down as well, to divide by it would hide that.
    """
    other = any(change.area in OTHER_COMPUTATION and change.what not in HARMLESS for change in changes)
    return not other and not any(draft.cell.reference_moved for draft in drafts)


def _mark_moved(drafts: Sequence[Draft]) -> None:
    """By the cells of one study together; equal machines give one such mark in a hundred comparisons."""
    chances = {
        draft.cell.id: chance_differs(draft.ratios["reference"], draft.errors["reference"])
        for draft in drafts
        if "reference" in draft.errors
    }
    moved = holm(chances, MOVED)
    for draft in drafts:
        draft.cell.reference_moved = draft.cell.id in moved


def _steadier(drafts: Sequence[Draft], one: str, other: str, worth: float = 1.0) -> bool:
    """Whether one kind of ratio differs less from run to run than another, or little more, over cells that have both.

    What a machine does to all cells of a run is in plain ones and, as far as the short computation does not tell it,
    in normalised ones; what it does to the baseline cell alone is in relative ones.
    """
    both = [draft.errors for draft in drafts if {one, other} <= draft.errors.keys()]
    ours, theirs = (sum(each[name].standard_error ** 2 for each in both) for name in (one, other))
    return bool(both) and ours < worth * theirs
