"""Rows that sum up or average the rows above them."""

import math
import re
from collections.abc import Iterator

from worldsize.analysis.audit.facts import SUMMARY, Place, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, shown, together
from worldsize.analysis.audit.numbers import Printed, Span, printed
from worldsize.analysis.audit.quantities import Quantity

RATIOS = (
    Quantity.SPEEDUP,
    Quantity.EFFICIENCY,
    Quantity.RATE,
    Quantity.STEP_RATE,
    Quantity.ACCURACY,
    Quantity.BANDWIDTH,
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
            added = quantity is Quantity.RATE and reading.columns[0].meaning.quantity in (
                Quantity.NODES,
                Quantity.RANK,
                Quantity.N,
            )
            if quantity in RATIOS and not added and not re.search("mean|av", entries[0].lower()):
                continue  # ratios do not add up, rates only those of workers side by side
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
    text = (
        f"{name.strip().capitalize()} is printed as {value.text}; the {len(spans)} rows above give {shown(first, 4)}."
    )
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


RULES = (Rule("summary-row", "Averages and totals are those of their rows", check_summaries, "arithmetic"),)
