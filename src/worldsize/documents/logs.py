"""Lines that say the same of several runs, as a log does: each number stands under the words around it."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from worldsize.documents.grid import Blocks, Cell
from worldsize.documents.numbers import COUNTED, UNIT, tidy

MAX_NUMBERS = 30
"""Numbers of one line."""
_LONGEST_LINE = 500
_LONGEST_NAME = 60
_NUMBER = re.compile(r"(?<![\d.])[~≈]?(?:(?<=[\s(=:])[+\-−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+\-]?\d+)?%?")
_BEGINNING = re.compile(r"\s*(?:[-*•]\s+)?(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?\S*\s*)?")
"""The mark of a list, and the time at which a line was written."""
_CUT = re.compile(r"[,;|]+|:\s+(?=\S)")
_ON = re.compile(r"\s*(?:each|on|per|in|for|of|with|total|at)\b")
"""Words that go on with the unit before them."""
_PER = re.compile(r"/[a-zA-Z]{1,10}\b")
_EDGES = " \t:=,;|-–—()[]."
_PLURAL = re.compile(r"(?<=[a-z])s\b")
_WITH = re.compile(r"\s+(?:with|on|using|at|for|of|over)$")


class _Line(NamedTuple):
    """What a line says: `names` of its numbers, and the words before the first one where that has its own name."""

    place: int
    label: str
    names: tuple[str, ...]
    values: tuple[str, ...]
    pattern: str


def read(lines: Sequence[str], blocks: Blocks, line: int) -> bool:
    """Add the tables that lines with the same words make to the blocks, with all other lines as paragraphs.

    Returns whether there was one; nothing is added otherwise.
    """
    groups = [group for group in _merged(_groups(lines)) if _is_table(group)]
    used = {each.place for group in groups for each in group}
    at = 0
    for group in groups:
        first = group[0].place
        blocks.words(" ".join(text for place, text in enumerate(lines[at:first], at) if place not in used))
        at = max(at, first)
        for pattern in dict.fromkeys(each.pattern for each in group):
            blocks.words(pattern)
        blocks.table(_cells(group), line + first if line else 0, 1)
    if groups:
        blocks.words(" ".join(text for place, text in enumerate(lines[at:], at) if place not in used))
    return bool(groups)


def _groups(lines: Sequence[str]) -> list[list[_Line]]:
    """Lines of the same words, in the order of their first ones."""
    alike: dict[str, list[tuple[int, str]]] = {}
    for place, line in enumerate(lines):
        text = line[_BEGINNING.match(line).end() :] if len(line) <= _LONGEST_LINE else ""  # type: ignore[union-attr]
        if 1 < len(_NUMBER.findall(text)) <= MAX_NUMBERS:
            key = _key(tidy(_NUMBER.sub("#", text)))
            alike.setdefault(key, []).append((place, text))
    return [group for texts in alike.values() if (group := list(_read(texts)))]


def _read(texts: Sequence[tuple[int, str]]) -> Iterator[_Line]:
    """What lines of the same words say; nothing where a number has no name."""
    found = [list(_NUMBER.finditer(text)) for _, text in texts]
    # p50 is a name, and so is ResNet-50: digits on a letter that are the same in all lines.
    named = [
        at
        for at in range(len(found[0]))
        if _on_a_letter(texts[0][1], found[0][at].start()) and len({numbers[at][0] for numbers in found}) == 1
    ]
    for (place, text), numbers in zip(texts, found, strict=True):
        kept = [number for at, number in enumerate(numbers) if at not in named]
        if len(kept) < 2:
            return
        edges = [0, *(edge for number in kept for edge in number.span()), len(text)]
        between = [text[edges[at] : edges[at + 1]] for at in range(0, len(edges), 2)]
        label, names = _names(between)
        said = _Line(place, label, names, tuple(number[0] for number in kept), tidy(" # ".join(between)))
        if not all(names) or len(max(names, key=len)) > _LONGEST_NAME or len(_keys(said)) < len(names):
            return
        yield said


def _on_a_letter(text: str, at: int) -> bool:
    before = text[:at].rstrip("-_")
    return bool(before) and before[-1].isalpha() and not text[at - 1].isspace()


def _names(between: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The name of the line, and those of its numbers by the words before, between and after them."""
    name = between[0].strip(_EDGES)
    label, names = "", []
    for at, words in enumerate(between[1:], 1):
        unit, following = _parted(words, bool(name), at == len(between) - 1)
        if at == 1 and COUNTED.match(unit):
            label, name = _WITH.sub("", name), ""
        if not any(letter.isalnum() for letter in name) and unit:
            name = ""
        names.append(f"{name} ({unit})" if name and unit else name or unit)
        name = following
    return label, tuple(names)


def _parted(words: str, is_named: bool, is_last: bool) -> tuple[str, str]:
    """Words between two numbers: the unit of the one before, and the name of the one after."""
    cut = _CUT.search(words)
    if cut or is_last:
        unit = words[: cut.start()] if cut else words
        return unit.strip(_EDGES), words[cut.end() :].strip(_EDGES) if cut else ""
    start = words.lstrip()
    known = COUNTED.match(start) or UNIT.match(start) or _PER.match(start)
    if known and not start[known.end() : known.end() + 1].isalnum():
        rest = start[known.end() :]
        if _ON.match(rest) and rest.rstrip().endswith((":", "=")):
            return start.strip(_EDGES), ""
        return known[0], rest.strip(_EDGES)
    name = words.strip(_EDGES) or words.strip()
    return ("", name) if is_named else (name, "")


def _merged(groups: Sequence[Sequence[_Line]]) -> list[list[_Line]]:
    """Groups, those after each other as one where the numbers of one are among those of the other."""
    found: list[list[_Line]] = []
    for lines in groups:
        keys = _keys(lines[0])
        group = [line for line in lines if _keys(line) == keys]
        widest = max(map(_keys, found[-1]), key=len) if found else frozenset()
        if found and (keys <= widest or widest <= keys):
            found[-1].extend(group)
        else:
            found.append(list(group))
    return [sorted(group) for group in found]


def _key(name: str) -> str:
    """A name in which GPU and GPUs are the same."""
    return _PLURAL.sub("", name.lower())


def _keys(line: _Line) -> frozenset[str]:
    return frozenset(map(_key, line.names))


def _is_table(group: Sequence[_Line]) -> bool:
    return len(group) > 1 and len({line.values for line in group}) > 1


def _cells(group: Sequence[_Line]) -> list[list[Cell]]:
    """A heading, and a row for each line; with a column for the names of the lines, where they have some."""
    widest = max(group, key=lambda line: len(line.names)).names
    places = {_key(name): at for at, name in reversed(list(enumerate(widest)))}
    rows = []
    for line in group:
        row = [""] * len(widest)
        for at, (name, value) in enumerate(zip(line.names, line.values, strict=True)):
            row[at if line.names == widest else places[_key(name)]] = value
        rows.append([line.label, *row])
    labelled = any(row[0] for row in rows)
    return [[Cell(text) for text in row[not labelled :]] for row in (["", *widest], *rows)]
