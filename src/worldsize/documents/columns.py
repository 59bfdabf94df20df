"""Lines of aligned text as columns: by blanks, by a rule above them, or by the numbers at their ends."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from worldsize.documents.numbers import UNIT, is_missing, is_number

_FIELD = re.compile(r"\S+(?: \S+)*")
_WORD = re.compile(r"\S+")
_STROKES = re.compile(r"[\-=_\u2500-\u2501\u2550]+")
_SPREADS = ("±", "+/-", "+-")


class Field(NamedTuple):
    """Words of a line, and where they stand in it."""

    text: str
    start: int
    end: int


Row = list[Field]
Span = tuple[int, int]


def fields(line: str) -> Row:
    """Words that more than one blank parts."""
    return [Field(found[0], *found.span()) for found in _FIELD.finditer(line)]


def tokens(line: str) -> Row:
    """Words that a blank parts; a number keeps its unit, its uncertainty and what follows in parentheses."""
    found: Row = []
    words = [Field(word[0], *word.span()) for word in _WORD.finditer(line)]
    for place, word in enumerate(words):
        after = words[place + 1].text if place + 1 < len(words) else ""
        if found and word.start == found[-1].end + 1 and _belongs(found[-1].text, word.text, after):
            found[-1] = Field(f"{found[-1].text} {word.text}", found[-1].start, word.end)
        else:
            found.append(word)
    return found


def _belongs(before: str, word: str, after: str) -> bool:
    if before.endswith(_SPREADS):
        return is_number(word)
    if not is_number(before):
        return False
    if word in ("x", "X", "×"):
        return not is_number(after)
    if word in _SPREADS:
        return is_number(after)
    return (
        UNIT.fullmatch(word) is not None
        or (word.startswith(_SPREADS) and is_number(f"{before} {word}"))
        or (word[0] in "([" and is_number(f"{before} {word}"))
    )


def is_value(text: str) -> bool:
    """Whether an entry is a number, or stands for one that there is not."""
    return (is_number(text) and text[-1] != ".") or is_missing(text)  # 2019. ends a sentence


def values_at_end(row: Sequence[Field]) -> int:
    """How many numbers, or marks for lacking ones, a line ends with; 0 without a number."""
    count = 0
    while count < len(row) and is_value(row[-1 - count].text):
        count += 1
    return count if any(is_number(each.text) for each in row[len(row) - count :]) else 0


def ways(lines: Sequence[str], rule: str) -> Iterator[list[Row]]:
    """Ways to take lines apart into equally many columns, the surest first; `rule` is the line of strokes above."""
    by_word = [tokens(line) for line in lines]
    by_field = [fields(line) for line in lines]
    strokes = [found.span() for found in _STROKES.finditer(rule)]
    if len(strokes) > 1 and (placed := _placed(by_word, strokes)):
        yield placed
    widths = set(map(len, by_field))
    if min(widths) > 1 and len(widths) == 1 and not any(_holds_several(field) for row in by_field for field in row):
        yield by_field
    elif max(widths) > 2:
        spans = spans_of([row for row in by_field if len(row) == max(widths)])
        placed = _placed(by_field, spans) if spans else None
        if placed:
            yield placed
    if len(set(map(len, by_word))) == 1 and len(by_word[0]) > 1 and _consistent(by_word):
        yield by_word
    counts = set(map(values_at_end, by_word))
    if len(counts) == 1 and 0 not in counts:
        named = [_named(row, values_at_end(row)) for row in by_word]
        if len(named[0]) > 1 and len(set(map(len, named))) == 1:
            yield named


def spans_of(rows: Sequence[Row]) -> list[Span] | None:
    """Where each column stands; None where columns stand over each other."""
    spans = [
        (min(field.start for field in column), max(field.end for field in column)) for column in zip(*rows, strict=True)
    ]
    apart = all(left[1] <= right[0] for left, right in pairwise(spans))
    return spans if apart else None


def _placed(rows: Sequence[Row], spans: Sequence[Span]) -> list[Row] | None:
    """Rows whose words were put into the columns they stand in; None where one stands in two."""
    found = []
    for row in rows:
        placed = [Field("", *span) for span in spans]
        for field in row:
            hit = [at for at, (start, end) in enumerate(spans) if field.start < end and field.end > start]
            if len(hit) != 1:
                return None
            before = placed[hit[0]]
            if before.text and is_number(before.text):
                return None
            text = f"{before.text} {field.text}".strip()
            placed[hit[0]] = Field(text, min(field.start, before.start), max(field.end, before.end))
        found.append(placed)
    return found


def _holds_several(field: Field) -> bool:
    """Whether several numbers stand between wider gaps: a number was too long for its column."""
    words = tokens(field.text)
    return sum(is_number(word.text) for word in words) > 1 and is_number(words[0].text)


def _consistent(rows: Sequence[Row]) -> bool:
    """Whether each column holds either numbers or words, and one holds numbers."""
    columns = [
        [is_number(field.text) for field in column if not is_missing(field.text)] for column in zip(*rows, strict=True)
    ]
    return all(len(set(column)) < 2 for column in columns) and any(any(column) for column in columns)


def _named(row: Row, count: int) -> Row:
    """The name of a row as one field, then its numbers."""
    name, values = row[: len(row) - count], row[len(row) - count :]
    if not name:
        return values
    return [Field(" ".join(each.text for each in name), name[0].start, name[-1].end), *values]
