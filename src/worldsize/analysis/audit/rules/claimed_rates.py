"""Rates of sentences against the table: "980 images/s on 8 GPUs", "7,000 tokens/s per GPU"."""

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Verdict
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.rules.sentences import Claim, short

APART = 2.0
"""A rate of one worker that is off by more than this factor from all of the table is of none of its runs."""


def rate_claim(claim: Claim, reading: Reading) -> Checked:
    """A rate that the table does not have; it may be of another run, so it is only suspect."""
    return _of_each(claim, reading) if claim.each else _of_all(claim, reading)


def _of_all(claim: Claim, reading: Reading) -> Checked:
    facts = [fact for fact in reading.of(Quantity.RATE) if fact.n == claim.n]
    room = (claim.number.span.high - claim.number.span.low) / 2
    wide = Span(claim.number.span.low - room, claim.number.span.high + room)
    n = float(claim.n or 1)
    if not facts or claim.n is None:
        return Checked()
    if any((fact.span * factor).meets(wide) for fact in facts for factor in (1.0, n, 1 / n)):
        return Checked(1)
    best = min(facts, key=lambda fact: abs(fact.span.mid - wide.mid))
    return _found(claim, f"the table has {best.text} at N = {claim.n}", best.text, best)


def _of_each(claim: Claim, reading: Reading) -> Checked:
    """A rate of one worker, of the N that is named or of any."""
    facts = [fact for fact in reading.of(Quantity.RATE) if fact.n and claim.n in (None, fact.n)]
    if not facts or not all(_counts_alike(claim, fact) for fact in facts):
        return Checked()
    values = [(fact.span if fact.per == "worker" else fact.span / float(fact.n or 1), fact) for fact in facts]
    value, best = min(values, key=lambda each: abs(each[0].mid - claim.number.span.mid))
    ratio = claim.number.span.mid / value.mid if value.mid else 1.0
    if 1 / APART <= ratio <= APART:
        return Checked(1)
    shown = f"{value.mid:.3g}"
    return _found(claim, f"the table gives {shown} of each worker at N = {best.n}", shown, best)


def _counts_alike(claim: Claim, fact: Fact) -> bool:
    """Whether both count tokens, or neither does."""
    return fact.unit is not None and ("tok" in fact.unit.name.lower()) == ("tok" in claim.sentence.lower())


def _found(claim: Claim, gives: str, shown: str, fact: Fact) -> Checked:
    text = f"“{short(claim.sentence)}”: {gives}, not {claim.number.text}."
    changes = "The sentence is what readers take with them."
    finding = Finding(
        "claim",
        Verdict.SUSPECT,
        text,
        (fact.place,),
        fact.place.table,
        claim.number.text,
        shown,
        None,
        changes,
    )
    return Checked(0, (finding,))
