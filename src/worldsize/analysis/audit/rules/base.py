"""The base of a comparison: there, equal to 1, alike in all but N."""

import re

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, one_finding, places, together
from worldsize.analysis.audit.meaning import meaning
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.readings import efficiency_ways, speedup_ways
from worldsize.analysis.audit.series import BASE, Series, series_of

CAUSES = r"cache|super-?linear|memory bandwidth|page|swap|larger batch|fits in|turbo"
"""Words that explain a speed-up above N."""
ROOM = 1.05
"""Above N by less than this is noise: sound tables print 101 to 104 %."""


def check_one(reading: Reading, page: Page) -> Checked:
    """The speed-up of the base is 1 (or its N), its efficiency 1."""
    found = []
    for target in series_of(reading, Quantity.SPEEDUP, Quantity.EFFICIENCY):
        if len(target.by_n) > 1:
            found.append(_one(target, target.by_n[target.base], _own(target, reading)))
    return together(found)


def _one(target: Series, fact: Fact, own: bool) -> Checked:
    ones = [1.0] if target.quantity is Quantity.EFFICIENCY else [1.0, float(target.base)]
    if any(fact.span.around(one) for one in ones):
        return Checked(1)
    if not own:
        return Checked()  # of another base, which the table need not show
    text = f"The {target.quantity} of the base (N = {target.base}) is {fact.text}, not 1."
    return one_finding(
        "base-not-one",
        Verdict.FAIL,
        text,
        [fact],
        "1",
        "fits if the base is another run, which is not in the table",
        f"The other numbers are {abs(fact.span.mid - 1):.0%} off, or relative to something that is not shown.",
    )


def _own(target: Series, reading: Reading) -> bool:
    """Whether the base of this table is the one that counts: most other numbers follow from it."""
    ways = speedup_ways(target, reading) if target.quantity is Quantity.SPEEDUP else efficiency_ways(target, reading)
    others = [n for n in target.by_n if n != target.base]
    for way in ways:
        if way.kind == "right" and not way.absolute and way.source.base == target.base:
            fits = [
                n
                for n in others
                if n in way.source.by_n and (value := way.value(n)) is not None and value.meets(target.by_n[n].span)
            ]
            if 2 * len(fits) >= len(others) and len(fits) > 0:
                return True
    return False


def check_superlinear(reading: Reading, page: Page) -> Checked:
    """A speed-up above N, or an efficiency above 1, needs a cause."""
    if re.search(CAUSES, reading.words.own.lower()):
        return Checked()
    found = []
    for target in series_of(reading, Quantity.SPEEDUP, Quantity.EFFICIENCY):
        found.append(_superlinear(target))
    return together(found)


def _superlinear(target: Series) -> Checked:
    base = target.by_n[target.base]
    if not (base.span.around(1) or base.span.around(target.base)) or len(target.by_n) < 2:
        return Checked()
    unit = target.base if base.span.around(1) else 1
    limits = {n: (n / unit if target.quantity is Quantity.SPEEDUP else 1.0) for n in target.by_n}
    over = [
        target.by_n[n] for n in sorted(target.by_n) if n > target.base and target.by_n[n].span.low > limits[n] * ROOM
    ]
    if not over:
        return Checked(len(target.by_n) - 1)
    texts = ", ".join(f"{fact.text} at N = {fact.n}" for fact in over)
    return Checked(
        len(target.by_n) - 1 - len(over),
        (
            Finding(
                "superlinear",
                Verdict.SUSPECT,
                f"The {target.quantity} is more than N workers can give: {texts}.",
                places(over),
                over[0].place.table,
                over[0].text,
                f"at most {limits[over[0].n or 1]:g}",
                "fits if the base is slower than one of these workers",
                "N alone does not explain the gain: caches, a larger batch or a weak base may; state the cause.",
            ),
        ),
    )


def check_rows(reading: Reading, page: Page) -> Checked:
    """Rows that are compared differ in N alone."""
    found = []
    for target in series_of(reading, Quantity.SPEEDUP):
        found += [_labels(target, reading), _batches(target, reading)]
    return together(found)


def _labels(target: Series, reading: Reading) -> Checked:
    """A column of words (hardware, precision) that changes within the rows of one series."""
    facts = target.facts()
    for index, column in enumerate(reading.columns):
        entries = [reading.table.rows[fact.place.row][index] for fact in facts]
        entries = [entry for entry in entries if not BASE.fullmatch(entry)]  # that word says what the row is for
        named = [meaning(entry) for entry in entries]
        if not column.label or any(each.n is not None or each.nodes is not None for each in named):
            continue
        if 1 < len(set(entries)) < len(entries):
            return _differ(target, f"{column.heading} ({', '.join(sorted(set(entries)))})")
    return Checked(1 if facts else 0)


def _batches(target: Series, reading: Reading) -> Checked:
    """Neither the batch of a worker nor the global one is the same in all rows."""
    facts = [fact for fact in target.facts() if fact.batch is not None]
    kinds = {fact.batch_per for fact in facts}
    if len(facts) < 2 or len(kinds) != 1:
        return Checked()
    sizes = [(fact.n or 1, fact.batch or 1) for fact in facts]
    local, whole, each = {size for _, size in sizes}, {n * size for n, size in sizes}, {size / n for n, size in sizes}
    if 1 in (len(local), len(whole), len(each)):
        return Checked(1)
    return _differ(target, f"the batch ({', '.join(str(size) for _, size in sizes)})")


def _differ(target: Series, what: str) -> Checked:
    facts = target.facts()
    return Checked(
        0,
        (
            Finding(
                "rows-differ",
                Verdict.EXPLAIN,
                f"Rows of one {target.quantity} differ in more than N: in {what}.",
                places(facts),
                facts[0].place.table,
                None,
                None,
                None,
                "How much of the speed-up comes from N is unknown.",
            ),
        ),
    )


def check_absolute(reading: Reading, page: Page) -> Checked:
    """A speed-up needs the time or rate that it is relative to."""
    ratios = reading.of(Quantity.SPEEDUP, Quantity.EFFICIENCY)
    absolute = any(table.of(*TIMES, Quantity.RATE, Quantity.STEP_RATE) for table in page.readings)
    if not ratios or absolute:
        return Checked(1 if ratios else 0)
    text = "Ratios without one absolute time or throughput: whether the base is fast or slow is unknown."
    return Checked(
        0,
        (
            Finding(
                "base-absolute",
                Verdict.MISSING,
                text,
                places(ratios[:1]),
                reading.index,
                None,
                None,
                None,
                "A slow base makes any speed-up large.",
            ),
        ),
    )


RULES = (
    Rule("base-not-one", "The speed-up of the base is 1", check_one, "method.md §6"),
    Rule("superlinear", "A speed-up above N has a cause", check_superlinear, "method.md §6"),
    Rule("rows-differ", "Rows that are compared differ in N alone", check_rows, "method.md §6"),
    Rule("base-absolute", "The base is given as a time or a rate", check_absolute, "Hoefler & Belli, SC'15, rule 1"),
)
