"""Tables in the values of JSON: lists of objects, objects of lists, and lists of lists, at any depth."""

from collections.abc import Mapping, Sequence
from typing import Any

from worldsize.documents.grid import MAX_CELLS, Blocks, Cell, too_many

MAX_DEPTH = 30
MAX_WORDS = 300
"""Paragraphs; a file of settings may hold thousands."""
_LONGEST_LIST = 8
"""Entries of a list that is one entry of a table."""


def read(value: Any, blocks: Blocks) -> None:
    """Add what a value holds to the blocks: tables under the path of their keys, and single values as paragraphs.

    Raises UsageError for too many entries.
    """
    _Reader(blocks).value(value, "", 0)


def text_of(value: Any) -> str:
    """A value as an entry: nothing for null and for what has parts of its own."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and len(value) <= _LONGEST_LIST and all(map(_is_single, value)):
        return ", ".join(map(text_of, value))
    return "" if value is None or isinstance(value, dict | list) else str(value)


class _Reader:
    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._words = 0

    def value(self, value: Any, path: str, depth: int) -> None:
        """Add all that is in a value."""
        if depth > MAX_DEPTH:
            return
        if isinstance(value, list):
            self._list(value, path, depth)
        elif isinstance(value, dict):
            self._object(value, path, depth)
        elif path and self._words < MAX_WORDS and text_of(value):
            self._words += 1
            self._blocks.words(f"{path}: {text_of(value)}")

    def _list(self, values: list[Any], path: str, depth: int) -> None:
        if values and all(isinstance(each, dict) for each in values):
            self._records(values, path)
            for place, each in enumerate(values):
                for key, inner in each.items():
                    if isinstance(inner, list) and any(isinstance(part, dict | list) for part in inner):
                        self.value(inner, f"{path}[{place}].{key}", depth + 1)
        elif len(values) > 1 and all(isinstance(each, list) and all(map(_is_single, each)) for each in values):
            self._blocks.table([[Cell(text_of(each)) for each in row] for row in values], 0, caption=path)
        elif any(isinstance(each, dict | list) for each in values):
            for place, each in enumerate(values):
                self.value(each, f"{path}[{place}]", depth + 1)
        elif path and self._words < MAX_WORDS and text_of(values):
            self._words += 1
            self._blocks.words(f"{path}: {text_of(values)}")

    def _object(self, value: Mapping[str, Any], path: str, depth: int) -> None:
        done = self._split(value, path) or self._columns(value, path) or self._named(value, path)
        for key, inner in value.items():
            if key not in done:
                self.value(inner, f"{path}.{key}" if path else key, depth + 1)

    def _records(self, records: Sequence[Mapping[str, Any]], path: str) -> None:
        """A list of objects: each is a row."""
        flat = [_flat(record) for record in records]
        keys = list(dict.fromkeys(key for row in flat for key in row))
        if len(keys) * len(flat) > MAX_CELLS:
            raise too_many(0)
        if keys:
            rows = [keys, *([row.get(key, "") for key in keys] for row in flat)]
            self._blocks.table([[Cell(text) for text in row] for row in rows], 0, 1, path)

    def _split(self, value: Mapping[str, Any], path: str) -> list[str]:
        """Names of columns and rows apart, as pandas writes them with `orient="split"`; returns the keys used."""
        names, data, index = value.get("columns"), value.get("data"), value.get("index")
        if not (isinstance(names, list) and isinstance(data, list) and data and all(isinstance(r, list) for r in data)):
            return []
        rows = [[text_of(each) for each in row] for row in (names, *data)]
        if isinstance(index, list) and len(index) == len(data):
            rows = [[name, *row] for name, row in zip(["", *map(text_of, index)], rows, strict=True)]
        self._blocks.table([[Cell(text) for text in row] for row in rows], 0, 1, path)
        return ["columns", "data", "index"]

    def _columns(self, value: Mapping[str, Any], path: str) -> list[str]:
        """Lists of the same length under their names; returns the names."""
        lists = {key: each for key, each in value.items() if _is_column(each)}
        lengths = {len(each) for each in lists.values()}
        if len(lists) < 2 or len(lengths) != 1:
            return []
        rows = [list(lists), *([text_of(each) for each in row] for row in zip(*lists.values(), strict=True))]
        self._blocks.table([[Cell(text) for text in row] for row in rows], 0, 1, path)
        return list(lists)

    def _named(self, value: Mapping[str, Any], path: str) -> list[str]:
        """Objects with the same keys under the names of the rows; returns those names."""
        records = list(value.values())
        if len(records) < 2 or not all(isinstance(each, dict) and each and _is_flat(each) for each in records):
            return []
        if len({tuple(sorted(each)) for each in records}) > 1:
            return []
        keys = list(records[0])
        rows = [["", *keys], *([name, *(text_of(each[key]) for key in keys)] for name, each in value.items())]
        self._blocks.table([[Cell(text) for text in row] for row in rows], 0, 1, path)
        return list(value)


def _is_single(value: Any) -> bool:
    return not isinstance(value, dict | list)


def _is_flat(value: Mapping[str, Any]) -> bool:
    return all(map(_is_single, value.values()))


def _is_column(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(map(_is_single, value))


def _flat(record: Mapping[str, Any], path: str = "", depth: int = 0) -> dict[str, str]:
    """The entries of an object and of those in it; that of `value` is the object's own, as of an estimate."""
    found: dict[str, str] = {}
    for key, value in record.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):
            found |= _flat(value, name, depth + 1) if depth < 4 else {}
        elif _is_single(value) or text_of(value):
            found[path if path and key == "value" else name] = text_of(value)
    return found
