"""Weak and strong scaling: whether the batch of the table grows as the words say."""

import re

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding
from worldsize.analysis.audit.quantities import Quantity

_SAME_BATCH = re.compile(
    r"(?:global|total|effective|overall) (?:mini-?)?batch(?:[ -]?size)?[^.\n]{0,40}"
    r"\b(?:is|was|stays?|kept|held|remains?)\b"
    r"[^.\n]{0,20}\b(?:fixed|constant|the same|unchanged)\b|\b(?:fixed|constant|same) (?:global|total) batch",
    re.IGNORECASE,
)
_SAME_DATA = re.compile(
    r"(?:data ?set|data|samples|problem size|tokens|epochs?)\b[^.\n]{0,20}\b(?:fixed|constant|same)", re.IGNORECASE
)


def check_kind(reading: Reading, page: Page) -> Checked:
    """Under "strong scaling" the global batch is the same at every N; under "weak scaling" it grows with N."""
    said = _said(reading, page)
    batches = _global(reading)
    counts = sorted(batches)
    if len(counts) < 2 or counts[0] == counts[-1] or said is None:
        return Checked()
    first, last = batches[counts[0]], batches[counts[-1]]
    each = {batches[n].span.mid / n for n in counts}
    same = len({batches[n].span.mid for n in counts}) == 1
    changes = "An efficiency at N times the work says nothing of the time that the same work takes on N workers."
    text = f"The global batch grows from {first.text} to {last.text}, by as much as N"
    if len(each) == 1 and said == "same batch":
        says = f"{text}; the words say that it is the same at every N."
        return one_finding("scaling-kind", Verdict.FAIL, says, [last, first], first.text, "fits weak scaling", changes)
    if len(each) == 1 and said == "strong" and not _epochs(reading):
        says = f"{text}: this is weak scaling; it is called strong."
        return one_finding("scaling-kind", Verdict.FAIL, says, [last, first], first.text, "fits weak scaling", changes)
    if same and said == "weak" and not reading.of(Quantity.PARAMETERS):
        says = f"The global batch is {first.text} at every N: strong scaling, if nothing else grows; it is called weak."
        return one_finding("scaling-kind", Verdict.SUSPECT, says, [last, first], None, "fits strong scaling", changes)
    return Checked(1)


def _said(reading: Reading, page: Page) -> str | None:
    """What the words say of this table: its caption and headings, or where it is the only one all of them."""
    headings = " ".join(column.heading for column in reading.columns)
    near = f"{reading.words.caption} {headings}"
    alone = len(page.readings) == 1
    if _SAME_BATCH.search(reading.words.text if alone else reading.words.own):
        return "same batch"
    low = near.lower()
    weak, strong = (re.search(rf"\b{kind}[ -]scaling", low) is not None for kind in ("weak", "strong"))
    if weak != strong:
        return "weak" if weak else "strong"
    return reading.words.scaling if alone and not weak else None


def _global(reading: Reading) -> dict[int, Fact]:
    """The global batch that is printed for each N; nothing where one N has several."""
    facts = [
        fact
        for fact in reading.of(Quantity.BATCH)
        if fact.per == "total" and fact.n is not None and fact.place.row >= 0
    ]
    found = {fact.n: fact for fact in facts if fact.n is not None}
    values = {(fact.n, fact.span.mid) for fact in facts}
    return found if len(values) == len(found) else {}


def _epochs(reading: Reading) -> bool:
    """Whether the work is that of an epoch or a whole training, which is the same at every N."""
    return bool(reading.of(Quantity.EPOCH_TIME, Quantity.TIME)) or _SAME_DATA.search(reading.words.text) is not None


RULES = (Rule("scaling-kind", "What is called weak or strong scaling is", check_kind, "Gustafson, 1988"),)
