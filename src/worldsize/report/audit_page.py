"""The page of an audit: one HTML file without script and without network; every text of the document is escaped."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.facts import Place, Reading
from worldsize.analysis.audit.findings import Finding, Rule, Verdict
from worldsize.report.audit_parts import (
    MEANINGS,
    SIGNS,
    ColumnRead,
    Mark,
    checks,
    columns_read,
    document_name,
    headline,
    left_out,
    marks,
    numbered,
    places_by_column,
    rows_drawn,
    rule_of,
    table_title,
    words_read,
)
from worldsize.report.html import POLICY, environment
from worldsize.results.files import write_whole

MAX_LINKS = 12
"""Cells of one column that a finding links to; the table marks all."""
LONG = 40
"""Characters of an entry that may be broken into lines."""


class CellLink(NamedTuple):
    """A cell that a finding names."""

    anchor: str
    text: str


class ColumnLinks(NamedTuple):
    """The cells of a finding in one column."""

    table: int
    """From 1, as people count."""
    heading: str
    cells: list[CellLink]
    more: int
    """Cells beyond those that are linked to."""


class FindingShown(NamedTuple):
    """A finding with its number, its rule and its cells."""

    number: int
    finding: Finding
    rule: Rule | None
    places: list[ColumnLinks]


class CellShown(NamedTuple):
    """A cell of a table, as HTML has it."""

    text: str
    tag: str
    scope: str
    span: int
    classes: str
    anchor: str
    marks: Sequence[Mark]


class TableShown(NamedTuple):
    """A table with its cells marked, and how it was read."""

    number: int
    title: str
    header: list[list[CellShown]]
    rows: list[list[CellShown]]
    note: str
    columns: list[ColumnRead]
    words: list[str]


def write_audit_page(audit: Audit, path: Path) -> None:
    """Write the page of an audit to a file, whole or not at all.

    Raises OutputError if it cannot be written.
    """
    write_whole(path, render_audit_page(audit))


def render_audit_page(audit: Audit) -> str:
    """The page as text."""
    found = [_finding(number, finding, audit) for number, finding in numbered(audit)]
    marked = marks(audit)
    held = checks(audit)
    return (
        environment()
        .get_template("audit.html.j2")
        .render(
            policy=POLICY,
            part_colours={},
            name=document_name(audit),
            format=audit.document.format,
            headline=headline(audit),
            found=[each for each in found if each.finding.verdict is not Verdict.MISSING],
            missing=[each for each in found if each.finding.verdict is Verdict.MISSING],
            tables=[_table(reading, marked) for reading in audit.readings],
            held=[each for each in held if each.holds or each.findings],
            idle=[each.rule.title for each in held if not (each.holds or each.findings)],
            signs=SIGNS,
            meanings=MEANINGS,
        )
    )


def _finding(number: int, finding: Finding, audit: Audit) -> FindingShown:
    places = []
    for column in places_by_column(finding, audit):
        cells = list(zip(column.places, column.texts, strict=True))
        linked = [CellLink(_anchor(place), text or "empty") for place, text in cells[:MAX_LINKS]]
        places.append(ColumnLinks(column.table + 1, column.heading, linked, len(cells) - len(linked)))
    return FindingShown(number, finding, rule_of(finding), places)


def _table(reading: Reading, marked: Mapping[Place, Sequence[Mark]]) -> TableShown:
    drawn = rows_drawn(reading, (place for place in marked if place.table == reading.index))
    return TableShown(
        reading.index + 1,
        table_title(reading),
        list(_header(reading, marked)),
        [_row(reading, row, marked) for row in drawn],
        left_out(reading, drawn),
        columns_read(reading),
        words_read(reading.words),
    )


def _header(reading: Reading, marked: Mapping[Place, Sequence[Mark]]) -> Iterable[list[CellShown]]:
    """Rows of the heading; an outer one that spans several columns is one cell. A table without any gets numbers."""
    width = len(reading.columns)
    levels = reading.table.header or (tuple(f"column {place + 1}" for place in range(width)),)
    for depth, texts in enumerate(levels):
        last = depth == len(levels) - 1
        cells: list[CellShown] = []
        for place, text in enumerate(texts):
            if cells and not last and text and text == cells[-1].text:
                cells[-1] = cells[-1]._replace(span=cells[-1].span + 1, scope="colgroup")
                continue
            at = Place(reading.index, -1, place)
            found = marked.get(at, ()) if last else ()
            classes = _classes(found, _align(reading, place))
            cells.append(
                CellShown(text, "th" if text else "td", "col", 1, classes, _anchor(at) if found else "", found)
            )
        yield cells


def _row(reading: Reading, row: int, marked: Mapping[Place, Sequence[Mark]]) -> list[CellShown]:
    cells = []
    for column, text in enumerate(reading.table.rows[row]):
        place = Place(reading.index, row, column)
        found = marked.get(place, ())
        names = column == 0 and text.strip()
        classes = _classes(found, "prose long" if len(text) > LONG else _align(reading, column))
        anchor = _anchor(place) if found else ""
        cells.append(CellShown(text, "th" if names else "td", "row" if names else "", 1, classes, anchor, found))
    return cells


def _align(reading: Reading, column: int) -> str:
    return "left" if column >= len(reading.columns) or reading.columns[column].label or not column else "right"


def _classes(found: Sequence[Mark], align: str) -> str:
    """The worst verdict gives the colour."""
    return f"{align} {found[0].verdict.lower()}" if found else align


def _anchor(place: Place) -> str:
    row = f"r{place.row + 1}" if place.row >= 0 else "head"
    return f"t{place.table + 1}-{row}-c{place.column + 1}"
