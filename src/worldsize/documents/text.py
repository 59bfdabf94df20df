"""Tables of plain text: drawn, aligned, or copied out of a page, where one blank may part two columns."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from worldsize.documents import horovod, logs, nccl
from worldsize.documents.columns import Row, fields, is_value, spans_of, tokens, values_at_end, ways
from worldsize.documents.frames import frames, is_rule
from worldsize.documents.frames import read as read_frame
from worldsize.documents.grid import Blocks, Cell, heading_rows
from worldsize.documents.headings import groups, may_be_heading, names
from worldsize.documents.numbers import is_number, unbolded
from worldsize.documents.unit_lines import units_in, with_units

_LONGEST_NAME = 6
"""Words of the name of a row; what has more is prose that ends in a number."""
_LONGEST_LINE = 2_000
"""Characters of a row."""
_HEADING_LINES = 3


class _Table(NamedTuple):
    heading: list[list[str]]
    rows: list[list[str]]


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add what a plain text holds to the blocks; `line` is where it begins in its file.

    Raises UsageError for too many entries.
    """
    if nccl.is_output(source):
        nccl.read(source, blocks, line)
        return
    if horovod.is_output(source):
        horovod.read(source, blocks, line)
        return
    lines = source.replace("\u00a0", " ").split("\n")
    at = 0
    for frame in frames(lines):
        _between(lines, at, frame.start, blocks, line)
        if not read_frame(lines[frame.start : frame.end], blocks, line + frame.start if line else 0):
            blocks.words(" ".join(lines[frame.start : frame.end]))
        at = frame.end
    _between(lines, at, len(lines), blocks, line)


def _between(lines: Sequence[str], start: int, end: int, blocks: Blocks, line: int) -> None:
    """Lines without drawn tables: each run of lines that no blank one parts is looked at for itself."""
    at = start
    for is_blank, run in groupby(lines[start:end], key=lambda each: not each.strip()):
        part = list(run)
        if not is_blank:
            _part(part, blocks, line + at if line else 0)
        at += len(part)


def _part(lines: Sequence[str], blocks: Blocks, line: int) -> None:
    tables: list[tuple[int, int, _Table]] = []
    for start, end in _runs(lines):
        above, table = _table(lines, tables[-1][1] if tables else 0, start, end)
        if table:
            tables.append((above, end, table))
    if not any(table.heading for _, _, table in tables) and logs.read(lines, blocks, line):
        return
    at = 0
    for above, end, table in tables:
        _words(lines[at:above], blocks)
        cells = [[Cell(*unbolded(text)) for text in row] for row in [*table.heading, *table.rows]]
        blocks.table(cells, line + above if line else 0, len(table.heading))
        at = end
    _words(lines[at:], blocks)


def _words(lines: Sequence[str], blocks: Blocks) -> None:
    blocks.words(" ".join(each for each in lines if not is_rule(each)))


def _runs(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of rows, with the rules between them; rows with other numbers of values are other runs."""
    kinds = [_kind(each) for each in lines]
    at = 0
    for is_row, run in groupby(kinds, key=bool):
        count = len(list(run))
        if is_row and any(kind > 0 for kind in kinds[at : at + count]):
            rows = [each for each, kind in zip(lines[at : at + count], kinds[at : at + count], strict=True) if kind > 0]
            if next(ways(rows, _rule_above(lines, at, kinds)), None):
                yield at, at + count
            else:
                yield from _alike(kinds, at, at + count)
        at += count


def _alike(kinds: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    at = start
    for _, run in groupby(kinds[start:end]):
        count = len(list(run))
        if kinds[at] > 0:
            yield at, at + count
        at += count


def _kind(line: str) -> int:
    """How many values a row has; -1 for a rule, 0 for words."""
    if len(line) > _LONGEST_LINE:
        return 0
    if is_rule(line):
        return -1
    row = tokens(line)
    count = values_at_end(row)
    if count and 1 < len(row) <= count + _LONGEST_NAME:
        return count
    wide = fields(line)
    if len(wide) > 2 and any(is_number(field.text) for field in wide):
        return len(wide)
    # A last column of words.
    return values_at_end(row[:-1]) if values_at_end(row[:-1]) > 1 and may_be_heading(line) and len(row) < 12 else 0


def _rule_above(lines: Sequence[str], start: int, kinds: Sequence[int]) -> str:
    """The rule right above the first row of a run, which may begin with it."""
    while start < len(lines) and kinds[start] < 0 and start + 1 < len(lines) and kinds[start + 1] < 0:
        start += 1
    if start < len(lines) and kinds[start] < 0:
        return lines[start]
    return lines[start - 1] if start and kinds[start - 1] < 0 else ""


def _table(lines: Sequence[str], first: int, start: int, end: int) -> tuple[int, _Table | None]:
    """The table of a run of rows, with the line at which its heading begins."""
    kinds = [_kind(each) for each in lines[:end]]
    rows = [lines[at] for at in range(start, end) if kinds[at] > 0]
    best: tuple[int, _Table | None] = (start, None)
    for way in ways(rows, _rule_above(lines, start, kinds)):
        texts = [[field.text for field in row] for row in way]
        above, heading = _heading(lines, first, start, way)
        if heading and (len(rows) > 1 or len(texts[0]) > 2):
            return above, _Table(heading, texts)
        if best[1] is None and len(rows) > 1:
            count = _heading_in(texts)
            if len(texts[0]) > 2 and (count or any("." in text for row in texts for text in row if is_number(text))):
                best = (start, _Table(texts[:count], texts[count:]))
    return best


def _heading(lines: Sequence[str], first: int, start: int, way: Sequence[Row]) -> tuple[int, list[list[str]]]:
    """The lines above that name the columns, outermost first, and where they begin."""
    count, spans = len(way[0]), spans_of(way)
    corner = not all(is_value(row[0].text) for row in way)
    found: list[list[str]] = []
    units: list[str] = []
    at = above = start
    while at > first and len(found) < _HEADING_LINES:
        at -= 1
        line = lines[at]
        if is_rule(line):
            continue
        if not found and not units and len(fields(line)) == 1 and (units := units_in(line, count)):
            continue
        if not may_be_heading(line):
            break
        named = (groups(line, count, spans) if found else None) or names(line, count, spans, corner)
        if named is None and line.startswith("# "):  # a comment
            named = names(line.replace("#", " ", 1), count, spans, corner)
        if named is None:
            break
        found.insert(0, with_units(named, units) if units else named)
        above, units = at, []
    return above, found


def _heading_in(rows: Sequence[Sequence[str]]) -> int:
    """How many of the rows are the heading, where no words stand above: one of ascending whole numbers."""
    count = heading_rows(rows)
    numbers = [text for text in rows[0][1:] if text]
    whole = all(text.isdecimal() and len(text) < 10 for text in numbers)
    ascending = whole and [int(text) for text in numbers] == sorted({int(text) for text in numbers})
    return count if count and numbers and (ascending or not any(map(is_number, numbers))) else 0
