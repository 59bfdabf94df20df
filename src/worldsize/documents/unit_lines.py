"""A line of units under a line of names, as text out of a PDF has it: "GPUs Throughput Speedup" over "(images/s)"."""

import re
from collections.abc import Sequence

_UNIT = re.compile(r"[(\[][^()\[\]]{1,24}[)\]]")
_PART = re.compile(r"[(\[][^()\[\]]{1,24}[)\]]|\S+")
_WORD_OF_NAME = re.compile(
    r"(?:\s*(?:time|size|efficiency|up|bandwidth|batch|throughput|accuracy|rate|memory|ratio)\b)+\s*", re.IGNORECASE
)
"""Second words of names that were broken into two lines."""
_SUITS = (
    (
        re.compile(r"%|percent"),
        r"efficien|accura|util|overhead|share|scal|ratio|fraction|mfu|reduc|gain|improve|top-?\d",
    ),
    (re.compile(r"[kmgt]i?b(?:it)?(?:/s|ps)", re.IGNORECASE), r"bandwidth|\bbw\b|throughput|speed|rate"),
    (re.compile(r"/\s?(?:s|sec|second)s?$|per sec"), r"throughput|speed|rate|perf"),
    (re.compile(r"[kmgt]?i?b|bytes", re.IGNORECASE), r"size|mem|message|volume|traffic|data|bytes|payload|footprint"),
    (
        re.compile(r"[mµμun]?s|secs?|seconds?|min|mins|minutes|h|hrs?|hours|days"),
        r"time|latency|duration|epoch|step|comp|comm|total|forward|backward|iter|wall|load|optim|reduce",
    ),
)
"""Units, and the words of a name that each can stand under."""


def units_in(line: str, count: int) -> list[str]:
    """The units of a line that has nothing else, or one or a word for each of `count` columns, the first apart.

    None of any other line.
    """
    found = _UNIT.findall(line)
    if not found or not _UNIT.sub("", line).strip():
        return found
    parts = _PART.findall(line)
    return parts if len(parts) in (count, count - 1) and _WORD_OF_NAME.fullmatch(_UNIT.sub(" ", line)) else []


def with_units(names: Sequence[str], units: Sequence[str]) -> list[str]:
    """Names with their units: one to each name, or to each but the first; else each under the next that can have it."""
    found = list(names)
    first = len(names) - len(units)
    if first == 0 or (first == 1 and all(map(_suits, names[1:], units))):
        return [*found[:first], *(f"{name} {unit}" for name, unit in zip(found[first:], units, strict=True))]
    at = 0
    for unit in units:
        place = next((place for place in range(at, len(found)) if _suits(names[place], unit)), None)
        if place is None:
            return list(names)
        found[place] += f" {unit}"
        at = place + 1
    return found


def _suits(name: str, unit: str) -> bool:
    """Whether a unit can stand under a name; a word, or an unknown unit, can under any."""
    if unit[0] not in "([":
        return True
    inside = unit[1:-1].strip()
    words = next((words for pattern, words in _SUITS if pattern.search(inside)), "")
    return re.search(words, name, re.IGNORECASE) is not None
