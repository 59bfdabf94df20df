"""Tables that are drawn with bars and rules, as psql, tabulate and rich do."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from worldsize.documents.grid import MAX_HEADING, Blocks, Cell, is_heading
from worldsize.documents.numbers import is_number, tidy, unbolded

_BAR = re.compile(r"(?<!\\)[|│┃║┆┇┊┋╎╏]")
_RULE = re.compile(r"[\s\-=_+|:~*\u2500-\u257f\u2014]{3,}")
_STROKE = re.compile(r"[\-=_~\u2500-\u2501\u2504-\u2509\u254c-\u254d\u2550\u2014]{2}")


class Frame(NamedTuple):
    """Lines that belong together, by their places."""

    start: int
    end: int


def is_rule(line: str) -> bool:
    """Whether a line only parts others."""
    return _STROKE.search(line) is not None and _RULE.fullmatch(line) is not None


def frames(lines: Sequence[str]) -> Iterator[Frame]:
    """Runs of lines that are drawn as a table."""
    start = None
    for place, line in enumerate([*lines, ""]):
        if is_rule(line) or _BAR.search(line):
            start = place if start is None else start
            continue
        if start is not None and _is_table(lines[start:place]):
            yield Frame(start, place)
        start = None


def read(lines: Sequence[str], blocks: Blocks, line: int) -> bool:
    """Add the table that lines draw to the blocks, and return whether there was one."""
    rows = iter(_rows(lines))
    groups = [[next(rows) for _ in group] for group in _groups(lines)]
    if len(groups) > 2:
        groups = [groups[0], *map(_unwrapped, groups[1:])]
    head = None
    if len(groups) > 1 and len(groups[0]) <= MAX_HEADING and all(is_heading(_texts(row)) for row in groups[0]):
        head = len(groups[0])
    return blocks.table([row for group in groups for row in group], line, head)


def _is_table(lines: Sequence[str]) -> bool:
    """Whether most rows have equally many cells, and numbers stand in them."""
    rows = _rows(lines)
    if len(rows) < 2:
        return False
    width, alike = Counter(map(len, rows)).most_common(1)[0]
    has_number = any(is_number(cell.text) for row in rows[1:] for cell in row)
    return width > 1 and alike * 3 >= len(rows) * 2 and has_number


def _groups(lines: Sequence[str]) -> list[list[str]]:
    """Rows between rules."""
    groups: list[list[str]] = [[]]
    for line in lines:
        if not is_rule(line):
            groups[-1].append(line)
        elif groups[-1]:
            groups.append([])
    return [group for group in groups if group]


def _rows(lines: Sequence[str]) -> list[list[Cell]]:
    """Cells of each line but the rules; a bar at an edge is of the frame if all lines have one there."""
    rows = [[part.strip().replace("\\|", "|") for part in _BAR.split(each)] for each in lines if not is_rule(each)]
    for edge in (0, -1):
        if all(len(row) > 1 and not row[edge] for row in rows):
            for row in rows:
                row.pop(edge)
    return [[Cell(*unbolded(tidy(text))) for text in row] for row in rows]


def _unwrapped(rows: list[list[Cell]]) -> list[list[Cell]]:
    """Rows between two rules of a grid: one without a name goes on with the one above it."""
    found = rows[:1]
    for row in rows[1:]:
        if row[0].text or len(row) != len(found[-1]) or sum(bool(cell.text) for cell in row) == len(row) - 1 > 1:
            found.append(row)
        else:
            pairs = zip(found[-1], row, strict=True)
            found[-1] = [above._replace(text=tidy(f"{above.text} {below.text}")) for above, below in pairs]
    return found


def _texts(row: Sequence[Cell]) -> list[str]:
    return [cell.text for cell in row]
