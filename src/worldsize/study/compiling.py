"""What compiling takes of a study: each launch of a cell compiles before its first turn, and nothing of it is timed."""

from collections.abc import Iterable, Sequence
from math import ceil

from worldsize.ranks.turns import Facts
from worldsize.results.records import CellRecord, WarningRecord

MAX_SHARE = 0.5
"""Of a budget: beyond it compiling, and not what a reader wants to know, is what a study does."""
CODE = "budget-compiled"


def compiled(record: CellRecord, facts: Sequence[Facts], records: Iterable[CellRecord]) -> None:
    """Note what a launch of a cell compiled for; a warning once all `records` have taken more than half of a budget."""
    took_s = [fact.compile_s for fact in facts if fact.compile_s is not None]
    if not took_s:
        return
    record.compile_s.append(max(took_s))
    budget_s = record.settings.budget_s if record.settings else None
    everyone = list(records)
    all_s = sum(sum(each.compile_s) for each in everyone)
    if budget_s is None or all_s <= MAX_SHARE * budget_s:
        return
    text = (
        f"compiling took {all_s:.0f} s of the budget of {budget_s:g} s, so few steps were timed. "
        f"Give --budget {ceil(all_s + budget_s)}s; torch keeps what it compiled, so the same study compiles sooner."
    )
    for each in everyone:  # the last one knows all
        each.warnings = [warning for warning in each.warnings if warning.code != CODE]
    record.warnings.append(WarningRecord(code=CODE, message=text))
