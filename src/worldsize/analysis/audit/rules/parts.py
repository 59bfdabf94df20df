"""Parts and wholes: parts of a step, shares, and rows that sum up or average others."""

import math
import re
from collections.abc import Iterator

from worldsize.analysis.audit.facts import SUMMARY, Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Place, Rule, Verdict, places, shown, together
from worldsize.analysis.audit.meaning import PARTS, TIMES, Quantity
from worldsize.analysis.audit.numbers import Printed, Span, printed
from worldsize.analysis.audit.series import beside, only


RATIOS = (
    Quantity.SPEEDUP,
    Quantity.EFFICIENCY,
    Quantity.RATE,
    Quantity.STEP_RATE,
    Quantity.ACCURACY,
    Quantity.BANDWIDTH,
)
WHOLE = ("", "step", "epoch", "iteration", "iter", "wall", "elapsed", "wall-clock", "clock", "end-to-end")
"""What the heading of a whole says besides that it is a time."""


def check_parts(reading: Reading, page: Page) -> Checked:
    """A part is at most the whole, and parts that run one after the other sum up to at most the whole."""
    found = []
    for whole in reading.of(*TIMES):
        parts = [part for part in (only(beside(reading, whole, each)) for each in PARTS) if part is not None]
        if parts and whole.column_label in WHOLE and not _summary(whole, reading):
            found.append(_parts(whole, parts, reading))
    return together(found)


def _summary(fact: Fact, reading: Reading) -> bool:
    return (
        SUMMARY.match(reading.table.rows[fact.place.row][0] if reading.table.rows[fact.place.row] else "") is not None
    )


def _parts(whole: Fact, parts: list[Fact], reading: Reading) -> Checked:
    larger = [part for part in parts if part.span.low > whole.span.high * (1 + 1e-9)]
    if larger:
        text = f"{larger[0].quantity} of {larger[0].text} is more than the whole {whole.quantity}, {whole.text}."
        return _finding("parts", Verdict.FAIL, text, [larger[0], whole], None, "The part is not of this whole.")
    if len(parts) < 2:
        return Checked(1)
    total = parts[0].span
    for part in parts[1:]:
        total = total + part.span
    named = len({part.quantity for part in parts}) >= 2 and {Quantity.COMPUTE, Quantity.COMMUNICATION} <= {
        part.quantity for part in parts
    }
    if not named or total.meets(whole.span) or reading.words.overlap:
        return Checked(1)
    stated = "total" in _heading(reading, whole)
    sums = " + ".join(part.text for part in parts)
    if total.low > whole.span.high:
        text = f"{sums} is {shown(total)} s, more than the whole of {whole.text}."
        verdict = Verdict.FAIL if stated else Verdict.EXPLAIN
        return _finding(
            "parts",
            verdict,
            text,
            [*parts, whole],
            shown(total),
            "Possible where communication is hidden behind computing; what is exposed must be said.",
        )
    if stated:
        text = f"{sums} is {shown(total)} s; {whole.text} is printed as their total."
        return _finding("parts", Verdict.FAIL, text, [*parts, whole], shown(total), "Some of the time is in no part.")
    return Checked(1)


def _heading(reading: Reading, fact: Fact) -> str:
    row = reading.table.rows[fact.place.row]
    return f"{reading.columns[fact.place.column].heading} {row[0] if row else ''}".lower()


def check_shares(reading: Reading, page: Page) -> Checked:
    """A share is its part ÷ the whole, and shares of one whole sum up to at most 100 %."""
    found = []
    for share in reading.of(Quantity.SHARE):
        part, whole = _part_of(reading, share)
        if part is not None and whole is not None:
            found.append(_share(share, part, whole))
    rows: dict[int, list[Fact]] = {}
    for share in reading.of(Quantity.SHARE):
        rows.setdefault(share.place.row, []).append(share)
    for shares in rows.values():
        found.append(_shares(shares, reading))
    return together(found)


def _part_of(reading: Reading, share: Fact) -> tuple[Fact | None, Fact | None]:
    words = _heading(reading, share)
    for quantity, names in (
        (Quantity.COMMUNICATION, ("comm", "sync", "reduce")),
        (Quantity.COMPUTE, ("comput",)),
        (Quantity.DATA, ("data", "load")),
    ):
        if any(name in words for name in names):
            return only(beside(reading, share, quantity)), only(beside(reading, share, *TIMES))
    return None, None


def _share(share: Fact, part: Fact, whole: Fact) -> Checked:
    value = part.span / whole.span
    if value.meets(share.span):
        return Checked(1)
    fits = "fits if it is part ÷ the rest" if (part.span / (whole.span - part.span)).meets(share.span) else None
    text = f"{part.text} of {whole.text} is {value.mid:.1%}; {share.text} is printed."
    return _finding(
        "percent",
        Verdict.FAIL,
        text,
        [share, part, whole],
        f"{value.mid:.1%}",
        "The share decides what is called the bottleneck.",
        fits,
    )


def _shares(shares: list[Fact], reading: Reading) -> Checked:
    if len(shares) < 2 or any(_kept_apart(share, reading) for share in shares):
        return Checked()
    total = shares[0].span
    for share in shares[1:]:
        total = total + share.span
    if total.low > 1 + 1e-9 and not reading.words.overlap:
        texts = " + ".join(share.text for share in shares)
        return _finding(
            "percent",
            Verdict.FAIL,
            f"{texts} is {total.mid:.1%}: more than all of it.",
            shares,
            f"{total.mid:.1%}",
            "One of the shares is not of this whole.",
        )
    named = {
        name
        for share in shares
        for name in ("comm", "comp", "data", "load", "other", "idle")
        if name in _heading(reading, share)
    }
    if total.high < 1 - 1e-9 and len(shares) >= 3 and "other" in named:
        texts = " + ".join(share.text for share in shares)
        return _finding(
            "percent",
            Verdict.FAIL,
            f"{texts} is {total.mid:.1%}, not 100 %.",
            shares,
            f"{total.mid:.1%}",
            "Some of the time is in no part.",
        )
    if total.high < 0.97 and {"comm", "comp"} <= named:
        texts = " + ".join(share.text for share in shares)
        return _finding(
            "percent",
            Verdict.FAIL,
            f"{texts} is {total.mid:.1%}, not 100 %.",
            shares,
            f"{total.mid:.1%}",
            "Some of the time is in no part.",
        )
    return Checked(1)


def _kept_apart(share: Fact, reading: Reading) -> bool:
    """Overheads and hidden shares are not parts of one whole."""
    return any(
        word in _heading(reading, share) for word in ("overhead", "hidden", "overlap", "exposed", "util", "peak")
    )


def check_summaries(reading: Reading, page: Page) -> Checked:
    """A row that says average or total is that of the rows above it."""
    found = []
    for row, entries in enumerate(reading.table.rows):
        name = SUMMARY.match(entries[0]) if entries else None
        if name is None or row < 2:
            continue
        for column, entry in enumerate(entries[1:], start=1):
            quantity = reading.columns[column].meaning.quantity
            if quantity in RATIOS and not re.search("mean|av", entries[0].lower()):
                continue  # ratios and rates do not add up
            value = printed(entry)
            values = list(_above(reading, row, column))
            if value is not None and len(values) >= 2 and len(values) == row:
                found.append(_summed(entries[0].lower(), value, values, Place(reading.index, row, column)))
    return together(found)


def _above(reading: Reading, row: int, column: int) -> Iterator[Printed]:
    for entries in reading.table.rows[:row]:
        number = printed(entries[column]) if column < len(entries) else None
        if number is not None and not SUMMARY.match(entries[0]):
            yield number


def _summed(name: str, value: Printed, values: list[Printed], place: Place) -> Checked:
    spans = [each.span for each in values]
    total = Span(sum(each.low for each in spans), sum(each.high for each in spans))
    mean = total / len(spans)
    means = {"arithmetic": mean}
    if all(each.low > 0 for each in spans):
        means["geometric"] = Span(
            math.exp(_mean([math.log(each.low) for each in spans])),
            math.exp(_mean([math.log(each.high) for each in spans])),
        )
        means["harmonic"] = Span(
            1 / _mean([1 / each.low for each in spans]), 1 / _mean([1 / each.high for each in spans])
        )
    if "total" in name or "sum" in name:
        right = {"total": total}
    elif "overall" in name:
        right = {"total": total} | means
    else:
        right = means
    if any(each.meets(value.span) for each in right.values()):
        return Checked(1)
    first = next(iter(right.values()))
    outside = not Span(min(each.low for each in spans), max(each.high for each in spans)).meets(value.span)
    fits = "fits if it is the total" if "total" not in right and total.meets(value.span) else None
    text = f"{name.strip()} is printed as {value.text}; the {len(spans)} rows above give {shown(first, 4)}."
    if outside and "total" not in right:
        text += " It lies outside of all of them."
    return Checked(
        0,
        (
            Finding(
                "summary-row",
                Verdict.FAIL,
                text,
                (place,),
                place.table,
                value.text,
                shown(first, 4),
                fits,
                "What is concluded from the average falls.",
            ),
        ),
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _finding(
    rule: str,
    verdict: Verdict,
    says: str,
    facts: list[Fact],
    recomputed: str | None,
    changes: str,
    fits: str | None = None,
) -> Checked:
    return Checked(
        0,
        (Finding(rule, verdict, says, places(facts), facts[0].place.table, facts[0].text, recomputed, fits, changes),),
    )


RULES = (
    Rule("parts", "Parts are at most the whole", check_parts, "method.md §3"),
    Rule("percent", "Shares are parts of 100 %", check_shares, "arithmetic"),
    Rule("summary-row", "Averages and totals are those of their rows", check_summaries, "arithmetic"),
)
