"""Bold for the best of a column or a row."""

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding, together
from worldsize.analysis.audit.quantities import TIMES, Quantity

_LOWER_IS_BETTER = (*TIMES, Quantity.COMMUNICATION, Quantity.LOSS, Quantity.DATA)


_HIGHER_IS_BETTER = (Quantity.RATE, Quantity.SPEEDUP, Quantity.EFFICIENCY, Quantity.ACCURACY, Quantity.BANDWIDTH)


def check_bold(reading: Reading, page: Page) -> Checked:
    """The one bold number of a column is its best."""
    found = []
    columns: dict[int, list[Fact]] = {}
    for fact in reading.of(*_LOWER_IS_BETTER, *_HIGHER_IS_BETTER):
        columns.setdefault(fact.place.column, []).append(fact)
    for facts in columns.values():
        bold = [fact for fact in facts if fact.bold and not _whole_row(fact, reading)]
        if len(bold) != 1 or len(facts) < 2 or len({fact.quantity for fact in facts}) > 1:
            continue
        found.append(_bold(bold[0], facts, reading))
    return together(found)


def _whole_row(fact: Fact, reading: Reading) -> bool:
    """Whether all of its row is bold, as a setting of the authors' own is."""
    row = fact.place.row
    shown = [column for column, entry in enumerate(reading.table.rows[row]) if entry.strip()]
    return len(shown) > 1 and all((row, column) in reading.table.bold for column in shown)


def _bold(bold: Fact, facts: list[Fact], reading: Reading) -> Checked:
    lower = bold.quantity in _LOWER_IS_BETTER
    better = [fact for fact in facts if (fact.span.high < bold.span.low if lower else fact.span.low > bold.span.high)]
    row = [fact for fact in reading.facts if fact.place.row == bold.place.row and fact.quantity is bold.quantity]
    if not better or (
        len(row) > 1
        and not any((fact.span.high < bold.span.low if lower else fact.span.low > bold.span.high) for fact in row)
    ):
        return Checked(1)  # the best of its column, or of its row
    if (
        len(row) > 1
        and sum(fact.bold for fact in reading.facts) >= len(reading.table.rows[0]) - 1
        and all(fact.bold for fact in row)
    ):
        return Checked()  # a row of the authors' own, bold all along
    best = (min if lower else max)(better, key=lambda fact: fact.span.mid)
    text = f"{bold.text} is printed bold; {best.text} is better."
    return one_finding(
        "bold", Verdict.SUSPECT, text, [bold, best], best.text, None, "What is marked as the best is not."
    )


RULES = (Rule("bold", "Bold is the best", check_bold, "convention"),)
