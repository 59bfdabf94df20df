"""A table as data, formatted once, and its renderers to Markdown, CSV and plain records.

The HTML page and the terminal render the same `Table`, so that every output shows the same numbers.
"""

import csv
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from worldsize.analysis.numbers import ABSENT, interval_text, number_text
from worldsize.results.records import Estimate

Raw = str | int | float | bool | None

TERMINAL_WIDTH = 80
"""Columns of the narrowest terminal that a compact table must fit (two spaces between its columns)."""
MIN_NAME_WIDTH = 8
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\n")
"""https://owasp.org/www-community/attacks/CSV_Injection"""


@dataclass(frozen=True)
class Column:
    """A column: its heading with unit, its alignment, and the names of its raw values in a CSV."""

    label: str
    keys: tuple[str, ...]
    """Names, with units, of the raw values behind one entry; three for a value with its interval."""
    unit: str = ""
    align: Literal["left", "right", "prose"] = "right"
    """`prose` is to the left, and may be broken into lines."""
    between_workers: bool = False
    """Says something of several workers only: dropped where no row has a value (method.md §5: absent, not 0)."""
    note: str = ""
    """What it means, said below the table while the column is shown."""

    @property
    def heading(self) -> str:
        """Label and unit, `Step time (ms)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


@dataclass(frozen=True)
class Entry:
    """One cell of a table: what is read, and the raw values behind it, one per key of its column."""

    text: str
    raw: tuple[Raw, ...]
    interval: str = ""
    """`[low, high]`, shown smaller beside the text."""

    @property
    def plain(self) -> str:
        """Text and interval in one line."""
        return f"{self.text} {self.interval}".strip()


@dataclass(frozen=True)
class Table:
    """A table whose entries are formatted already."""

    id: str
    """Name of its files, and its anchor on the page."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Entry, ...], ...]
    note: str = ""
    """What the numbers mean and by which formula; the section of method.md."""
    chosen: tuple[int, ...] | None = None
    """Places of the rows that people see where there are more than they would read; None is all. Files for programs
    have all."""

    @property
    def remarks(self) -> str:
        """The note, then those of the columns."""
        return " ".join(filter(None, [self.note, *(column.note for column in self.columns)]))


def shown(table: Table) -> Table:
    """The table as people see it: its chosen rows, without the columns of communication where there was none."""
    if table.chosen is not None:
        rows = tuple(table.rows[place] for place in table.chosen)
        left_out = f"{len(rows):,} of {len(table.rows):,} rows; the CSV has all."
        table = replace(table, rows=rows, note=f"{table.note} {left_out}".strip(), chosen=None)
    kept = [
        index
        for index, column in enumerate(table.columns)
        if not column.between_workers or any(row[index].text != ABSENT for row in table.rows)
    ]
    return with_columns(table, kept)


def with_columns(table: Table, places: Sequence[int]) -> Table:
    """The table with the columns at these places alone."""
    columns = tuple(table.columns[place] for place in places)
    return replace(table, columns=columns, rows=tuple(tuple(row[place] for place in places) for row in table.rows))


def headed(table: Table, labels: Mapping[str, str]) -> Table:
    """Those of its columns whose first keys are named, in this order, under headings that say the unit if any does."""
    places = {column.keys[0]: place for place, column in enumerate(table.columns)}
    found = with_columns(table, [places[key] for key in labels])
    columns = zip(found.columns, labels.values(), strict=True)
    return replace(found, columns=tuple(replace(column, label=label, unit="") for column, label in columns))


def fitted(table: Table, width: int, cut: Callable[[str, int], str]) -> Table:
    """The table with two spaces between its columns and its first column cut so that it fits `width`.

    `cut` makes of a text that is too long one of so many signs.
    """
    others = sum(
        max(len(column.heading), *(len(row[place].plain) for row in table.rows), 0)
        for place, column in enumerate(table.columns[1:], start=1)
    )
    room = max(MIN_NAME_WIDTH, width - others - 2 * (len(table.columns) - 1))
    first = [row[0] if len(row[0].text) <= room else Entry(cut(row[0].text, room), row[0].raw) for row in table.rows]
    return replace(table, rows=tuple((entry, *row[1:]) for entry, row in zip(first, table.rows, strict=True)))


def turned(table: Table) -> Table:
    """A table with one row, turned on its side: a line per column, for narrow places."""
    columns = (Column("", ("name",), align="left"), Column("", ("value",)))
    seen = shown(table)
    lines = tuple(
        (text(column.heading), Entry(entry.plain, (entry.text,)))
        for column, entry in zip(seen.columns, seen.rows[0], strict=True)
        if entry.text != ABSENT
    )
    return replace(seen, columns=columns, rows=lines)


def text(value: str | None) -> Entry:
    """An entry of words, on one line; `–` without any."""
    return Entry(" ".join(value.split()) if value else ABSENT, (value,))


def integer(value: int | None) -> Entry:
    """An exact count."""
    return Entry(ABSENT if value is None else f"{value:,}", (value,))


def number(value: float | None, factor: float = 1.0) -> Entry:
    """A number; shown times `factor` (the unit of the heading), kept raw in the unit of its key."""
    return Entry(number_text(None if value is None else value * factor), (value,))


def estimate(value: Estimate | None, factor: float = 1.0) -> Entry:
    """A value with its 95 % interval; its column has three keys."""
    if value is None:
        return Entry(ABSENT, (None, None, None))
    return Entry(number_text(value.value * factor), (value.value, value.low, value.high), interval_text(value, factor))


def interval_keys(name: str) -> tuple[str, str, str]:
    """The keys of a value with its interval."""
    return (name, f"{name}_low", f"{name}_high")


def to_records(table: Table) -> list[dict[str, Raw]]:
    """The raw values, one dict per row: for JSON and for scripts."""
    keys = [key for column in table.columns for key in column.keys]
    return [dict(zip(keys, (raw for entry in row for raw in entry.raw), strict=True)) for row in table.rows]


def to_csv(table: Table) -> str:
    """Comma-separated raw values in full precision, absent is empty; what begins like a formula is marked as text."""
    file = io.StringIO()
    writer = csv.DictWriter(file, [key for column in table.columns for key in column.keys], lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _inert(raw) for key, raw in row.items()} for row in to_records(table))
    return file.getvalue()


def _inert(raw: Raw) -> Raw:
    """A sheet computes text that begins like a formula, unless an apostrophe says that it is text; numbers are none.

    Ends of lines are made alike: the csv module puts a lone carriage return without quotes, where it ends the row.
    """
    if not isinstance(raw, str):
        return raw
    words = "\n".join(re.split(r"\r\n?|\n", raw))
    return f"'{words}" if words.startswith(FORMULA_STARTS) else words


def to_markdown(table: Table) -> str:
    """Title, table and remarks in Markdown, the columns padded so that the source reads as well."""
    table = shown(table)
    grid = [[column.heading for column in table.columns], *([entry.plain for entry in row] for row in table.rows)]
    grid = [[escaped(cell) for cell in row] for row in grid]
    widths = [max(3, *(len(row[i]) for row in grid)) for i in range(len(table.columns))]
    rule = [
        f"{'-' * (width - 1)}:" if column.align == "right" else "-" * width
        for column, width in zip(table.columns, widths, strict=True)
    ]
    lines = [_line(table.columns, row, widths) for row in grid]
    lines.insert(1, f"| {' | '.join(rule)} |")
    note = f"\n{escaped(table.remarks)}\n" if table.remarks else ""
    return f"### {escaped(table.title)}\n\n" + "\n".join(lines) + "\n" + note


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column.align == "right" else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    return f"| {' | '.join(cells)} |"


def escaped(cell: str) -> str:
    """Text from users must not become a line, a column, a tag, a link or emphasis; `[low, high]` stays readable."""
    cell = " ".join(cell.splitlines())
    cell = re.sub(r"[\\|`*]", r"\\\g<0>", cell)
    cell = re.sub(r"(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])", lambda run: run[0].replace("_", r"\_"), cell)
    return cell.replace("](", r"]\(").replace("&", "&amp;").replace("<", "&lt;")
