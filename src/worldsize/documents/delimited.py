"""Tables of values that a comma, a semicolon, a tab or a bar separates."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from worldsize.documents.decimals import decimal, numbers, pointed
from worldsize.documents.grid import MAX_CELLS, Blocks, Cell, too_many
from worldsize.documents.numbers import is_number, is_word, tidy, unbolded

DELIMITERS = "\t;|,"
"""The surer first."""
_LOOKED_AT = 500
"""Lines by which the delimiter is chosen."""
_LONGEST_FIELD = 20
"""Lines of one quoted entry; more are those after a quote that was left open."""
_STROKES = " \t|+:;,=-"


class _Row(NamedTuple):
    line: int
    cells: list[str]


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add what a text of delimited values holds to the blocks; `line` is where it begins in its file.

    Raises UsageError for too many entries.
    """
    delimiter = delimiter_of(source) or ","
    if source.count(delimiter) > MAX_CELLS:
        raise too_many(0)
    for start, part in _parts(source.split("\n")):
        _part(part, delimiter, blocks, line + start if line else 0)


def delimiter_of(source: str) -> str | None:
    """What separates the entries of most lines into equally many; None where nothing does."""
    lines = [line for line in source.split("\n", _LOOKED_AT)[:_LOOKED_AT] if line.strip() and line.lstrip()[0] != "#"]
    best, most = None, max(2, len(lines) // 2)
    for delimiter in DELIMITERS:
        alike = sum(_runs(lines, delimiter))
        if alike >= most and (best is None or alike > most):
            best, most = delimiter, alike
    return best


def _runs(lines: Sequence[str], delimiter: str) -> Iterator[int]:
    """Lengths of the runs of two lines or more that have equally many entries."""
    last, run = 1, 0
    for row in [*_split(lines, delimiter), _Row(0, [])]:
        if len(row.cells) == last:
            run += 1
            continue
        if last > 1 and run > 1:
            yield run
        last, run = len(row.cells), 1


def _parts(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Lines between blank ones, with the place of the first."""
    part: list[str] = []
    for place, line in enumerate([*lines, ""]):
        if line.strip(" \t,;|"):
            part.append(line)
        elif part:
            yield place - len(part), part
            part = []


def _part(lines: Sequence[str], delimiter: str, blocks: Blocks, line: int) -> None:
    """One table with the words around it, or words alone."""
    comments = [text for text in lines if text.lstrip().startswith("#")]
    kept = [(place, text) for place, text in enumerate(lines) if not text.lstrip().startswith("#")]
    rows = [
        row._replace(line=line + kept[min(row.line, len(kept) - 1)][0] if line else 0)
        for row in _split([text for _, text in kept], delimiter)
        if any(row.cells) and "".join(row.cells).strip(_STROKES)
    ]
    if sum(len(row.cells) for row in rows) > MAX_CELLS:
        raise too_many(line)
    rows = _points(rows, delimiter)
    rows = _commented_heading(comments, delimiter, rows)
    for text in comments:
        blocks.words(text.lstrip("# \t"))
    width = Counter(len(row.cells) for row in rows).most_common(1)[0][0] if rows else 0
    first, last = _bounds(rows, width)
    table = rows[first:last]
    if width < 2 or len(table) < 2 or not any(is_number(text) for row in table[1:] for text in row.cells):
        _as_words(rows, delimiter, blocks)
        return
    _as_words(rows[:first], delimiter, blocks)
    blocks.table([_cells(row, width, table) for row in table], table[0].line)
    _as_words(rows[last:], delimiter, blocks)


def _split(lines: Sequence[str], delimiter: str) -> list[_Row]:
    """Entries of each row, trimmed, with the place of its first line."""
    if not any('"' in line for line in lines):
        return [_Row(place, _entries(line.split(delimiter))) for place, line in enumerate(lines)]
    rows, before = [], 0
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=delimiter, skipinitialspace=delimiter != "\t")
    try:
        for cells in reader:
            if reader.line_num - before > _LONGEST_FIELD:
                raise csv.Error("a quote was left open")
            rows.append(_Row(before, _entries(cells)))
            before = reader.line_num
    except csv.Error:
        return [_Row(place, _entries(line.split(delimiter))) for place, line in enumerate(lines)]
    return rows


def _entries(cells: Sequence[str]) -> list[str]:
    return [cell.strip() for cell in cells]


def _bounds(rows: Sequence[_Row], width: int) -> tuple[int, int]:
    """The first row of the table and the first after it: lines of words stand above and below many a table."""
    first, last = 0, len(rows)
    while first < last - 1 and _is_title(rows[first], width, rows[first + 1]):
        first += 1
    while last > first + 1 and width > 2 and _is_note(rows[last - 1]):
        last -= 1
    return first, last


def _is_note(row: _Row) -> bool:
    filled = [text for text in row.cells if text]
    return len(filled) == 1 and is_word(filled[0]) and (len(row.cells) == 1 or filled[0].count(" ") > 2)


def _is_title(row: _Row, width: int, below: _Row) -> bool:
    filled = [text for text in row.cells if text]
    if len(filled) == 1 and width > 1:
        return is_word(filled[0]) and bool(row.cells[0])
    prose = len(row.cells) != width and len(filled) == len(row.cells) and not any(map(is_number, row.cells))
    return prose and not any(map(is_number, below.cells)) and len(below.cells) == width


def _cells(row: _Row, width: int, table: Sequence[_Row]) -> list[Cell]:
    cells = [Cell(*unbolded(tidy(text))) for text in row.cells]
    # Some programs give the column of the rows' names no name, not even an empty one.
    short = row is table[0] and len(cells) == width - 1 and any(is_word(each.cells[0]) for each in table[1:])
    return [Cell(""), *cells] if short and not any(is_number(cell.text) for cell in cells) else cells


def _as_words(rows: Sequence[_Row], delimiter: str, blocks: Blocks) -> None:
    between = f"{delimiter} " if delimiter in ",;" else " "
    for row in rows:
        blocks.words(between.join(text for text in row.cells if text))


def _commented_heading(comments: list[str], delimiter: str, rows: list[_Row]) -> list[_Row]:
    """Rows with their heading, where it was written as a comment; that is taken out of the comments."""
    if not comments or not rows or any(is_word(text) for text in rows[0].cells):
        return rows
    cells = _split([comments[-1].lstrip("# \t")], delimiter)[0].cells
    if len(cells) < 2 or len(cells) != len(rows[0].cells) or any(map(is_number, cells)):
        return rows
    comments.pop()
    return [_Row(rows[0].line, cells), *rows]


def _points(rows: list[_Row], delimiter: str) -> list[_Row]:
    """Rows whose decimal commas are points; commas that part thousands stay."""
    # 50,000 between semicolons is 50, as those who write points put no semicolons; between tabs it is 50 thousand.
    cells = numbers([text for row in rows for text in row.cells])
    if delimiter not in ";\t" or not decimal(cells, otherwise=delimiter == ";"):
        return rows
    return [row._replace(cells=list(map(pointed, row.cells))) for row in rows]
