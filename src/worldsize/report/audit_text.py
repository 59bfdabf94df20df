"""An audit as Markdown; what the document says must not become a tag, a link or a column of it."""

from collections.abc import Iterator, Mapping, Sequence

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.facts import Place, Reading
from worldsize.analysis.audit.findings import Finding, Verdict
from worldsize.report.audit_parts import (
    SIGNS,
    Mark,
    checks,
    columns_read,
    document_name,
    entry,
    heading,
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
from worldsize.report.tables import escaped

MAX_CELLS = 12
"""Cells of one column that a finding names; the table marks all."""


def audit_markdown(audit: Audit) -> str:
    """The findings of an audit, the worst first; the tables with their marks; what is missing, and what holds."""
    found = [each for each in numbered(audit) if each[1].verdict is not Verdict.MISSING]
    missing = [each for each in numbered(audit) if each[1].verdict is Verdict.MISSING]
    parts = [f"# Audit of {_plain(document_name(audit))}", _plain(headline(audit))]
    if found:
        parts.append("## Findings")
        parts += [_finding(number, finding, audit) for number, finding in found]
    marked = marks(audit)
    for reading in audit.readings:
        parts += _table(reading, marked)
    if missing:
        parts.append("## What is missing")
        parts.append("\n".join(_missing(number, finding) for number, finding in missing))
    parts += _checks(audit)
    return "\n\n".join(parts) + "\n"


def _finding(number: int, finding: Finding, audit: Audit) -> str:
    """A heading, and a list of what is known."""
    lines = [f"### {SIGNS[finding.verdict]} {finding.verdict} {number}. {_plain(finding.says)}", ""]
    lines += [f"- {place}" for place in _places(finding, audit)]
    said = {
        "Printed": finding.printed,
        "Recomputed": finding.recomputed,
        "Explanation": finding.fits,
        "What it changes": finding.changes,
    }
    lines += [f"- {name}: {_plain(text)}" for name, text in said.items() if text]
    rule = rule_of(finding)
    lines.append(f"- Rule: {finding.rule}" + (f" ({rule.title}; {rule.source})" if rule else ""))
    return "\n".join(lines)


def _places(finding: Finding, audit: Audit) -> Iterator[str]:
    for column in places_by_column(finding, audit):
        texts = [_plain(text) for text in column.texts[:MAX_CELLS]]
        more = f" and {len(column.texts) - MAX_CELLS} more" if len(column.texts) > MAX_CELLS else ""
        yield f"Table {column.table + 1}, {_plain(column.heading)}: {', '.join(texts)}{more}"


def _table(reading: Reading, marked: Mapping[Place, Sequence[Mark]]) -> Iterator[str]:
    """The table with its marks, and how it was read."""
    yield f"## {_plain(table_title(reading))}"
    drawn = rows_drawn(reading, (place for place in marked if place.table == reading.index))
    width = len(reading.columns)
    head = [_cell(reading, Place(reading.index, -1, column), marked) for column in range(width)]
    rows = [[_cell(reading, Place(reading.index, row, column), marked) for column in range(width)] for row in drawn]
    yield _grid(head, rows)
    note = left_out(reading, drawn)
    if note:
        yield note
    yield f"How Table {reading.index + 1} was read:"
    columns = [[_plain(text) for text in column] for column in columns_read(reading)]
    yield _grid(["Column", "Read as", "Unit", "Of"], columns)
    said = words_read(reading.words)
    if said:
        yield f"Said around it: {_plain('; '.join(said))}."


def _cell(reading: Reading, place: Place, marked: Mapping[Place, Sequence[Mark]]) -> str:
    text = heading(reading, place.column) if place.row < 0 else entry(reading, place)
    found = [f"**{mark.verdict} {mark.number}**" for mark in marked.get(place, ())]
    return " ".join([_plain(text), *found]).strip()


def _missing(number: int, finding: Finding) -> str:
    said = f"{_plain(finding.says)} {_plain(finding.changes or '')}".strip()
    return f"- {SIGNS[finding.verdict]} {finding.verdict} {number}. {said} ({finding.rule})"


def _checks(audit: Audit) -> Iterator[str]:
    held = [each for each in checks(audit) if each.holds or each.findings]
    if held:
        yield "## Checks"
        rows = [[each.rule.id, each.rule.title, str(each.holds), str(each.findings)] for each in held]
        yield _grid(["Rule", "What it checks", "Checks that hold", "Findings"], rows)


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """A stranger's text on one line, with nothing in it that Markdown acts upon."""
    return escaped(" ".join(text.split())).replace("~", r"\~").replace("![", r"!\[")
