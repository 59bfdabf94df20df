"""What the step times of two sides are judged by: as they are, over one worker's, or normalised (method.md §11).

Normalised: over the short computation that each rank times beside its steps. It is no code of the user's, so what it
takes longer in a run is what the machine gave less in that run, or what runs beside the steps took.
"""

from collections.abc import Sequence

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


def is_same_computation(changes: Sequence[Change]) -> bool:
    """Whether these changes leave the short computation the same work."""
    return not any(change.area in OTHER_COMPUTATION and change.what not in HARMLESS for change in changes)


def set_bases(drafts: Sequence[Draft], judge_by: JudgeBy, *, same_machine: bool, same_computation: bool) -> None:
    """Set what each cell is judged by, and whether the short computation moved; other work is not judged.

    `same_machine`: whether all runs are from one kind of machine. With `auto` that is whichever differs least from run
    to run there, else the relative one. Cells without the short computation are asked apart from those that have it.
    Spreads within a side say nothing of the difference between sides: the choice favours no verdict.
    """
    if judge_by != "plain":  # plain times were asked for, the machine included
        _mark_moved(drafts)
    moved = any(draft.cell.reference_moved for draft in drafts)
    baselines = {draft.cell.baseline for draft in drafts if draft.cell.baseline is not None}
    for has_it in (True, False):
        group = [draft for draft in drafts if ("normalised" in draft.errors) == has_it]
        base, over_a_cell = _steadiest(group, may_normalise=same_computation and not moved, same_machine=same_machine)
        for draft in group:
            cell = draft.cell
            if not cell.other_work and all(cell.measured) and cell.plain is not None:
                kept = base if not over_a_cell or cell.relative is None else "relative"
                cell.judged_by = kept if judge_by == "auto" else _asked(cell, judge_by, is_base=cell.id in baselines)


def _asked(cell: CellComparison, judge_by: JudgeBy, *, is_base: bool) -> JudgedBy | None:
    """A baseline cell is judged like any other: it has no relative times, so by its own."""
    if judge_by == "plain" or (judge_by == "relative" and cell.relative is None and is_base):
        return "plain"
    if judge_by == "relative":
        return "relative" if cell.relative is not None else None
    return "normalised" if cell.normalised is not None else None


def _steadiest(group: Sequence[Draft], *, may_normalise: bool, same_machine: bool) -> tuple[JudgedBy, bool]:
    """Which of plain and normalised ratios differs less from run to run, and whether relative ones are better yet.

    Where the computation took longer for certain it may be for what B left running beside the steps: not divided away.
    """
    if not same_machine:
        return "plain", True
    base: JudgedBy = "normalised" if may_normalise and _steadier(group, "normalised", "plain") else "plain"
    return base, not _steadier(group, base, "relative", WORTH[base])


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
