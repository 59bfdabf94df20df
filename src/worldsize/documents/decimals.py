"""Decimal commas: "34,2" in a table from half of the world is 34.2."""

import re
from collections.abc import Sequence
from dataclasses import replace

from worldsize.documents.document import Table
from worldsize.documents.numbers import is_number

_COMMA = re.compile(r"(?<![\d.,])(\d{1,3}(?:\.\d{3})+|\d*),(\d+)(?![\d,])")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:\.\d{3})+(?![\d.,])")
"""Points as a number has them whose decimals stand after a comma: 1.281.167, and also 1.955."""
LONGEST = 40
"""Characters of an entry that is looked at."""


def decimal(cells: Sequence[str], *, otherwise: bool = False) -> bool:
    """Whether commas part decimals in these cells: one cannot part thousands, and no number has a point.

    `otherwise` where each comma may part thousands, as in 50,000.
    """
    found = [match for text in cells if len(text) < LONGEST for match in _COMMA.finditer(text)]
    if any(len(match[2]) != 3 or "." in match[1] or not match[1] for match in found):
        return True
    return otherwise and bool(found) and not has_points(cells) and not any(map(_THOUSANDS.search, cells))


def has_points(cells: Sequence[str]) -> bool:
    """Whether a number has a decimal point."""
    return any("." in _THOUSANDS.sub("", text) and "," not in text and is_number(text) for text in cells)


def pointed(text: str) -> str:
    """A number with a point for its decimal comma, and no points between thousands; any other text as it is."""
    turned = _turned(text)
    return turned if is_number(turned) else text


def with_points(table: Table) -> Table:
    """The table with points for decimal commas; as it is where a number of it has a point, or where nothing says."""
    cells = [text for row in table.rows for text in row]
    if has_points(cells) or not decimal(numbers(cells)):
        return table
    return replace(table, rows=tuple(tuple(map(pointed, row)) for row in table.rows))


def numbers(cells: Sequence[str]) -> list[str]:
    """Those that are numbers, with a decimal comma or with a point."""
    return [text for text in cells if is_number(text) or is_number(_turned(text))]


def _turned(text: str) -> str:
    if len(text) >= LONGEST:
        return text
    text = _THOUSANDS.sub(lambda match: match[0].replace(".", ""), text)
    return _COMMA.sub(lambda match: f"{match[1].replace('.', '')}.{match[2]}", text)
