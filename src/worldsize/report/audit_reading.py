"""How a table was read, in words: what its columns hold, which were not understood, how its cells are named."""

from collections.abc import Sequence
from dataclasses import dataclass

from worldsize.analysis.audit.columns import Column
from worldsize.analysis.audit.facts import Place, Reading
from worldsize.analysis.audit.quantities import AXES, Quantity
from worldsize.analysis.audit.series import series_of
from worldsize.report.audit_parts import heading

MAX_NAME = 40
"""Characters of a heading or a label that are shown."""
MAX_CELLS = 3
"""Cells that are named; of more, how many."""


@dataclass(frozen=True)
class Heard:
    """What a column holds."""

    heading: str
    quantity: Quantity | None
    """None for names, for what was not understood, and for several quantities."""
    unit: str | None
    per: str | None
    understood: bool


def heard(reading: Reading) -> list[Heard]:
    """What each column holds: what its numbers were taken for, with what row and caption say of them."""
    found = []
    for place, column in enumerate(reading.columns):
        facts = [fact for fact in reading.facts if fact.place.column == place]
        quantities = dict.fromkeys(fact.quantity for fact in facts) or dict.fromkeys(
            [column.meaning.quantity] if column.meaning.quantity and not column.label else []
        )
        units = dict.fromkeys(fact.unit.name for fact in facts if fact.unit)
        unit = next(iter(units)) if len(units) == 1 else None
        pers = {fact.per for fact in facts if fact.per}
        per = pers.pop() if len(pers) == 1 else column.meaning.per
        quantity = next(iter(quantities)) if len(quantities) == 1 else None
        understood = column.label or (bool(quantities) and Quantity.OTHER not in quantities)
        found.append(Heard(column.heading, quantity, unit, per, understood or not _numbers(reading, place)))
    return found


def reading_sentence(reading: Reading, checks: dict[str, int]) -> str:
    """A line for a table: "Table 2 “caption”: workers, epoch time (s), speed-up; 3 series; 12 checks hold"."""
    caption = f" “{short(reading.words.caption)}”" if reading.words.caption else ""
    line = f" (line {reading.table.line})" if reading.table.line and not caption else ""
    held = dict.fromkeys(
        f"{fact.quantity.value} ({fact.unit.name})" if fact.unit else fact.quantity.value
        for fact in sorted(reading.facts, key=lambda fact: fact.place.column)
        if fact.quantity is not Quantity.OTHER
    )
    measured = [quantity for quantity in Quantity if quantity not in (*AXES, Quantity.OTHER)]
    count, passed = len(series_of(reading, *measured)), sum(checks.values())
    series = f"; {count} series" if count else ""
    read = ", ".join(held) or "nothing was understood"
    return f"Table {reading.index + 1}{caption}{line}: {read}{series}; {checks_text(passed)}"


def checks_text(count: int) -> str:
    """How many checks hold."""
    return "no check could be made" if not count else "1 check holds" if count == 1 else f"{count} checks hold"


def not_understood(reading: Reading) -> list[str]:
    """The headings of columns of numbers that no rule could use."""
    return list(dict.fromkeys(each.heading for each in heard(reading) if each.heading and not each.understood))


def places_text(places: Sequence[Place], reading: Reading) -> str:
    """Cells by the names of their rows and columns: "row “8”, column “Speed-up”"; empty for none."""
    kept = [place for place in places if place.table == reading.index]
    rows, columns = dict.fromkeys(place.row for place in kept), dict.fromkeys(place.column for place in kept)
    if not kept:
        return ""
    if len(kept) == len(rows) * len(columns):
        names = [row_name(reading, row) for row in rows], [column_name(reading, column) for column in columns]
        return ", ".join(filter(None, [_counted("row", names[0]), _counted("column", names[1])]))
    cells = [f"{row_name(reading, each.row)} under {column_name(reading, each.column)}" for each in kept]
    return _counted("cell", cells)


def _counted(what: str, names: Sequence[str]) -> str:
    named = [name for name in names if name]
    if not named:
        return ""
    more = f" and {len(named) - MAX_CELLS} more" if len(named) > MAX_CELLS else ""
    return f"{what}{'s' if len(named) > 1 else ''} {', '.join(named[:MAX_CELLS])}{more}"


def row_name(reading: Reading, row: int) -> str:
    """A row by its labels and what it counts, in quotes; the heading by that word."""
    if row < 0:
        return "of the heading"
    entries = reading.table.rows[row]
    telling = [place for place, column in enumerate(reading.columns) if _names_rows(column)] or [0]
    words = [entries[place].strip() for place in telling if place < len(entries)]
    return f"“{short(', '.join(word for word in words if word) or str(row + 1))}”"


def column_name(reading: Reading, column: int) -> str:
    """A column by its heading, in quotes."""
    return f"“{short(heading(reading, column))}”"


def short(text: str, size: int = MAX_NAME) -> str:
    """Text in one line, its end left out where it is long."""
    line = " ".join(text.split())
    return line if len(line) <= size else f"{line[: size - 1].rstrip()}…"


def _names_rows(column: Column) -> bool:
    return column.label or column.meaning.quantity in AXES


def _numbers(reading: Reading, place: int) -> bool:
    """Whether a column holds numbers."""
    entries = [row[place] for row in reading.table.rows if place < len(row)]
    return any(sign.isdigit() for entry in entries for sign in entry)
