"""Tables of one document that say different things of the same runs."""

import re

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, one_finding, places, together
from worldsize.analysis.audit.quantities import TIMES, Quantity

DERIVED = (Quantity.SPEEDUP, Quantity.EFFICIENCY)
SAME = 3
"""So many equal times or rates, and none that differs, make the runs of two tables the same."""
SHARP = 3
"""Digits of a number that is not the same by chance: two of them make a third that differs doubtful."""


def check(reading: Reading, page: Page) -> Checked:
    """A speed-up or efficiency of the same runs is the same in every table."""
    return together(_between(reading, other) for other in page.readings if other.index < reading.index)


def _between(later: Reading, earlier: Reading) -> Checked:
    times = _pairs(later, earlier, *TIMES, Quantity.RATE)
    odd = [(one, two) for one, two in times if not one.span.meets(two.span)]
    if odd:
        sharp = [one for one, two in times if one.span.meets(two.span) and len(one.number.digits) >= SHARP]
        largest = max(one.n or 0 for one, _ in times)
        told = len(sharp) >= 2 * len(odd) and all(one.n != largest for one, _ in odd) and _said_alike(later, earlier)
        return _times(later, earlier, odd) if told else Checked()
    if len(times) < SAME:
        return Checked()
    derived = _pairs(later, earlier, *DERIVED)
    differ = [(one, two) for one, two in derived if not one.span.meets(two.span)]
    if not differ:
        return Checked(len(derived))
    one, two = differ[0]
    said = f"{one.text} of N = {one.n} here, {two.text} in table {earlier.index + 1}"
    finding = Finding(
        "contradiction",
        Verdict.SUSPECT,
        f"Two tables have the same times and another {one.quantity}: {said}.",
        places(fact for fact, _ in differ),
        later.index,
        ", ".join(fact.text for fact, _ in differ),
        ", ".join(fact.text for _, fact in differ),
        "fits if each table has a definition of its own",
        "One name stands for two quantities; one of them is not what readers take it for.",
    )
    return Checked(len(derived) - len(differ), (finding,))


def _said_alike(later: Reading, earlier: Reading) -> bool:
    """Whether nothing that is said of two tables tells them apart, or the later one is said to be of the same runs."""
    said = [re.sub(r"\btable\s*\d+|\W", "", reading.words.own.lower()) for reading in (later, earlier)]
    return said[0] == said[1] or re.search(r"\b(?:same|these) (?:runs|measurements)\b", later.words.caption) is not None


def _times(later: Reading, earlier: Reading, odd: list[tuple[Fact, Fact]]) -> Checked:
    """Where nearly all times are the same to the last digit, the others are of the same runs as well."""
    one, two = odd[0]
    said = f"{one.text} of N = {one.n} here, {two.text} in table {earlier.index + 1}"
    return one_finding(
        "contradiction",
        Verdict.SUSPECT,
        f"Two tables have the same times or rates but for {len(odd)}: {said}.",
        [fact for pair in odd for fact in pair],
        ", ".join(fact.text for _, fact in odd),
        "fits if these are other runs",
        "Readers cannot tell which of the two was measured.",
    )


def _pairs(later: Reading, earlier: Reading, *quantities: Quantity) -> list[tuple[Fact, Fact]]:
    """Facts of both tables that are of the same run."""
    known = {_run(fact): fact for fact in earlier.of(*quantities)}
    return [(fact, known[_run(fact)]) for fact in later.of(*quantities) if fact.n is not None and _run(fact) in known]


def _run(fact: Fact) -> tuple[object, ...]:
    return fact.quantity, fact.per, fact.n, fact.nodes, fact.batch, fact.batch_per, fact.row_labels, fact.column_label


RULES = (Rule("contradiction", "Tables of the same runs agree", check, "arithmetic"),)
