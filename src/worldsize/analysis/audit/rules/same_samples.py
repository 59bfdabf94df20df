"""Rates and times of epochs whose data nothing names: rows of one series have the same samples."""

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Verdict, one_finding, shown, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.series import beside, is_typical, samples_of

ROWS = 3
"""So many rows, and twice as many as do not, say together what an epoch has."""
CLOSE = 0.03
"""A smaller last batch, and averages of rates, make this much."""


def epochs_alike(reading: Reading) -> Checked:
    """Epochs of data that nothing names: if most rows of a series make one number, so do the others."""
    groups: dict[tuple[object, ...], list[tuple[Fact, Fact, Span]]] = {}
    for rate in reading.of(Quantity.RATE):
        for time in beside(reading, rate, Quantity.EPOCH_TIME):
            if samples_of(reading, time) is None and is_typical(reading, time) and is_typical(reading, rate):
                workers = float((rate.n or 1) if rate.per == "worker" else 1)
                key = rate.row_labels, rate.column_label, rate.per, time.place.column
                groups.setdefault(key, []).append((rate, time, rate.span * time.span * workers))
    return together(_odd_ones(rows) for rows in groups.values() if not reading.words.grows)


def _odd_ones(rows: list[tuple[Fact, Fact, Span]]) -> Checked:
    alike = max(([each for *_, each in rows if each.meets(one)] for *_, one in rows), key=len)
    odd = [row for row in rows if not any(row[2].meets(each) for each in alike)]
    if len(alike) < ROWS or len(alike) <= 2 * len(odd):
        return Checked()
    usual = shown(Span.exact(sum(each.mid for each in alike) / len(alike)), 3)
    found = [
        one_finding(
            "rate-time",
            Verdict.SUSPECT,
            f"{rate.text} for {time.text} make {shown(product, 3)} of an epoch; the other rows make {usual}.",
            [rate, time],
            usual,
            "fits if it is an epoch of other data",
            f"Rate and time differ by {abs(product.mid / alike[0].mid - 1):.0%} from what the other rows say.",
        )
        for rate, time, product in odd
        if not (product * Span(1 - CLOSE, 1 + CLOSE)).meets(alike[0])
    ]
    return together([Checked(len(alike)), *found])
