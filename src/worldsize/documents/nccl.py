"""What nccl-tests prints: a table of message sizes below two headings, among lines that begin with `#`."""

import re
from collections.abc import Sequence

from worldsize.documents.grid import Blocks, Cell
from worldsize.documents.numbers import is_number, tidy

_HEADING = re.compile(r"[^#]*#\s+size\s+count\b")
_LONGEST_LINE = 2_000
WITH_UNIT = ("size", "count", "time", "algbw", "busbw", "cputime")
"""Columns below whose name a unit stands."""
PLACES = ("out-of-place", "in-place")
RANK = re.compile(r"^(?:\[[\d,]+\]\s*(?:<\w+>)?\s*:?|\s*\d+:(?=\s))")
"""What mpirun and srun put before each line of a rank."""


def is_output(source: str) -> bool:
    """Whether a text holds a table of nccl-tests."""
    return "busbw" in source and any(map(_is_heading, source.split("\n")))


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add the tables of nccl-tests in a text to the blocks, and its other lines as paragraphs."""
    lines = [RANK.sub("", each).strip() for each in source.split("\n")]
    rows: list[list[str]] = []
    heading: list[list[str]] = []
    after: list[str] = []
    begun = 0
    for place, text in enumerate(lines):
        if _is_heading(text):
            _finish(heading, rows, after, blocks, begun)
            begun = line + place if line else 0
            heading, rows, after = _heading(lines, place), [], []
            continue
        values = text.split()
        if heading and len(values) == len(heading[-1]) and values[0].isdecimal() and is_number(values[-2]):
            rows.append(values)
        elif heading and re.match(r"#\s*\(B\)", text):
            continue
        elif not re.fullmatch(r"#?\s*(?:out-of-place\s*)?(?:in-place)?", text):
            after.append(text.lstrip("# "))
    _finish(heading, rows, after, blocks, begun)


def heading_of(names: Sequence[str], units: Sequence[str], places: Sequence[str]) -> list[list[str]]:
    """The two rows of the heading: where the result was written to, then what was measured, with its unit."""
    first = next((at for at, name in enumerate(names) if name in ("time", "cputime")), len(names))
    each = max((len(names) - first) // max(len(places), 1), 1)
    groups = [""] * first + [places[min((at - first) // each, len(places) - 1)] for at in range(first, len(names))]
    measured = [name for name in names if name in WITH_UNIT]
    if len(measured) != len(units):
        return [groups, list(names)]
    unit = iter(units)
    return [groups, [f"{name} {next(unit)}" if name in WITH_UNIT else name for name in names]]


def _is_heading(line: str) -> bool:
    return "busbw" in line and len(line) <= _LONGEST_LINE and _HEADING.match(line) is not None


def _heading(lines: Sequence[str], place: int) -> list[list[str]]:
    names = lines[place][lines[place].index("#") + 1 :].split()
    above = lines[place - 1] if place else ""
    below = lines[place + 1] if place + 1 < len(lines) else ""
    places = [name for name in PLACES if name in above.split()] or ["" for _ in range(max(names.count("busbw"), 1))]
    return heading_of(names, below.split()[1:] if re.match(r"#\s*\(B\)", below) else [], places)


def _finish(
    heading: Sequence[Sequence[str]], rows: Sequence[Sequence[str]], after: Sequence[str], blocks: Blocks, line: int
) -> None:
    """The table, and then the lines that stood between its rows or after them."""
    if heading and rows:
        cells = [[Cell(tidy(text)) for text in row] for row in [*heading, *rows]]
        blocks.table(cells, line, len(heading))
    for text in after:
        blocks.words(text)
