"""Damages to bytes, to JSON and to lines of it, drawn by hypothesis."""

import copy
import json
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

DEEP = 5000
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**64, 10**30, 10**400),
    *(-0.0, 0.5, -1.5, 1e-320, 1e16, 1e308, -1e308, float("nan"), float("inf"), float("-inf")),
    *("", "0", "NaN", "x" * 3000, "\0", "\ud800", "../../x", "/etc/passwd", "ddp", "complete", "a\nb\r\nc", "𝟙"),
    *([], {}, [None], [[]], {"": None}, [0] * 300, [{}] * 3, {"a": {"b": {"c": []}}}),
)
"""Values that a record, or a setting, does not expect; JSON writers other than ours also write NaN."""
TOKENS = (b"1e999", b"-", b"0x10", b"1" * 5000, b"[" * DEEP, b'{"a":' * DEEP, b"\xff\xfe", b"\0", b"nul", b"'", b'"')
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:e-?\d+)?")
_KEY = re.compile(rb'"(\w+)"\s*:')


def damaged_bytes(data: st.DataObject, content: bytes) -> bytes:
    """Some bytes flipped, lost, repeated, put in or replaced."""
    at = data.draw(st.integers(0, max(0, len(content) - 1)))
    end = at + data.draw(st.integers(1, 200))
    token = data.draw(st.sampled_from(TOKENS) | st.binary(max_size=30))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: _flipped(data, content),
        lambda: _flipped(data, content),
        lambda: content[:at],
        lambda: content[at:],
        lambda: content[:at] + content[end:],
        lambda: content[:at] + content[at:end] * 3 + content[end:],
        lambda: content[:at] + token + content[at:],
        lambda: token,
        lambda: _at_match(data, _NUMBER, content, token),
        lambda: _at_match(data, _KEY, content, b"", twice=True),
    )
    return ways[data.draw(st.integers(0, len(ways) - 1))]()


def _flipped(data: st.DataObject, content: bytes) -> bytes:
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 6))):
        if changed:
            changed[data.draw(st.integers(0, len(changed) - 1))] ^= data.draw(st.integers(1, 255))
    return bytes(changed)


def _at_match(
    data: st.DataObject, pattern: "re.Pattern[bytes]", content: bytes, token: bytes, *, twice: bool = False
) -> bytes:
    """Put the token in the place of one match; or have a key there twice."""
    found = list(pattern.finditer(content))
    if not found:
        return content + token
    match = found[data.draw(st.integers(0, len(found) - 1))]
    if twice:
        token = match[0] + b" null, " + match[0]
    return content[: match.start()] + token + content[match.end() :]


def damaged_json(data: st.DataObject, content: bytes) -> bytes:
    """One or some values of a JSON document replaced, lost or added; else its bytes damaged."""
    if data.draw(st.integers(0, 3)) == 0:
        return damaged_bytes(data, content)
    value = json.loads(content)
    for _ in range(data.draw(st.sampled_from((1, 1, 1, 2, 4)))):
        value = _changed(data, value)
    return json.dumps(value).encode()


def _changed(data: st.DataObject, value: Any) -> Any:
    paths = list(_paths(value))
    path = paths[data.draw(st.integers(0, len(paths) - 1))]
    if not path:
        return _odd(data)
    holder = value
    for key in path[:-1]:
        holder = holder[key]
    how = data.draw(st.sampled_from(("odd", "odd", "odd", "number", "lose", "add", "other")))
    match how:
        case "odd":
            holder[path[-1]] = _odd(data)
        case "number":
            holder[path[-1]] = data.draw(st.integers() | st.floats())
        case "lose":
            del holder[path[-1]]
        case "add" if isinstance(holder, dict):
            holder[data.draw(st.text(max_size=5))] = _odd(data)
        case "add":
            holder.extend(holder[:5] * 3)
        case _:
            holder[path[-1]] = _at(value, paths[data.draw(st.integers(0, len(paths) - 1))])
    return json.loads(json.dumps(value))  # values may be shared now


def _odd(data: st.DataObject) -> Any:
    return copy.deepcopy(data.draw(st.sampled_from(ODD)))  # it may be changed in its turn


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return json.loads(json.dumps(value))


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    for key, inner in items:
        yield from _paths(inner, (*path, key))


def damaged_lines(data: st.DataObject, content: bytes) -> bytes:
    """Some lines of JSON changed, lost, repeated or in another order; else bytes damaged."""
    lines = content.splitlines(keepends=True)
    how = data.draw(st.sampled_from(("bytes", "values", "values", "values", "lose", "repeat", "order", "unended")))
    if not lines or how == "bytes":
        return damaged_bytes(data, content)
    at = data.draw(st.integers(0, len(lines) - 1))
    match how:
        case "values":
            for number in range(at, min(len(lines), at + data.draw(st.sampled_from((1, 1, 3, 1000))))):
                lines[number] = json.dumps(_changed(data, json.loads(lines[number]))).encode() + b"\n"
                if number - at > 8:
                    break
        case "lose":
            del lines[at]
        case "repeat":
            lines[at:at] = lines[at : at + 3] * 2
        case "order":
            lines[at:] = reversed(lines[at:])
        case _:
            lines[at] = lines[at].rstrip()
    return b"".join(lines)
