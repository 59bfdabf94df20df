"""What no measurement can give: negative times, a third of a worker, more than all of it."""

import re
from collections import defaultdict

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding, together
from worldsize.analysis.audit.quantities import KINDS, PARTS, TIMES, Quantity, agrees

COUNTS = (Quantity.N, Quantity.NODES, Quantity.PER_NODE)
ABOVE_ZERO = (*TIMES, *PARTS, *KINDS["rate"], *KINDS["step_rate"], *KINDS["bandwidth"], *KINDS["bytes"])
NEVER_ZERO = (*TIMES, Quantity.RATE)
SMALL = 20
"""Beside values this many times the last digit printed, a zero is not one that was rounded away."""
_DIFFERENCE = re.compile(
    r"δ|∆|\b(?:delta|minus|vs|versus|compared)\b|\b(?:diff|change|sav|reduc|improve)", re.IGNORECASE
)


def check_impossible(reading: Reading, page: Page) -> Checked:
    """Workers are counted from 1 in whole numbers; no time, rate or amount is negative; no accuracy is above 100 %."""
    columns: dict[tuple[int, Quantity], list[Fact]] = defaultdict(list)
    for fact in reading.facts:
        if fact.unit is None or agrees(fact.unit, fact.quantity):
            columns[fact.place.column, fact.quantity].append(fact)
    found = []
    for (column, quantity), facts in columns.items():
        heading = reading.columns[column].heading
        if quantity in COUNTS:
            found += _counts(facts)
        elif quantity in ABOVE_ZERO:
            found += [_amount(fact, facts) for fact in facts if not _DIFFERENCE.search(_named(fact, heading))]
        elif quantity is Quantity.ACCURACY:
            found += [_accuracy(fact) for fact in facts]
    return together(found)


def _named(fact: Fact, heading: str) -> str:
    return " ".join((heading, *fact.row_labels))


def _counts(facts: list[Fact]) -> list[Checked]:
    """Where most are whole; others are no counts, even where their heading was taken for one."""
    wrong = [fact for fact in facts if fact.number.value < 0 or not fact.number.value.is_integer()]
    if 2 * len(wrong) >= len(facts):
        return []
    found = [_found(Verdict.FAIL, f"{fact.text} cannot be a number of {fact.quantity.value}.", fact) for fact in wrong]
    for fact in facts:
        # In the first row it stands for a run without: threads that were never started.
        if fact.number.value == 0 and fact is not facts[0]:
            says = f"What was run with 0 {fact.quantity.value} is not said."
            found.append(_found(Verdict.EXPLAIN, says, fact, "fits if 0 stands for a run without accelerators"))
    return found


def _amount(fact: Fact, column: list[Fact]) -> Checked:
    name = fact.quantity.value
    if fact.span.high < 0:
        fits = "fits if it was computed by subtraction, which takes too much off" if fact.quantity in PARTS else None
        return _found(Verdict.FAIL, f"No {name} is negative: {fact.text}.", fact, fits)
    others = [each.span.mid for each in column if each.number.value != 0]
    if fact.number.value == 0 and fact.quantity in NEVER_ZERO and min(others, default=0) > SMALL * fact.span.high:
        return _found(Verdict.EXPLAIN, f"A {name} of {fact.text} was not measured.", fact, "fits if that run failed")
    return Checked()


def _accuracy(fact: Fact) -> Checked:
    if fact.unit is None or fact.span.low <= 1:
        return Checked()
    return _found(Verdict.FAIL, f"An accuracy of {fact.text} is more than all samples.", fact)


def _found(verdict: Verdict, says: str, fact: Fact, fits: str | None = None) -> Checked:
    return one_finding("impossible", verdict, says, [fact], None, fits, "Nothing that is computed from it holds.")


RULES = (Rule("impossible", "Counts are whole, times and amounts not negative", check_impossible, "arithmetic"),)
