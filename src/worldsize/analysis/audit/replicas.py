"""Where several workers hold one model, a batch is that of a replica: N counts more than what shares the data."""

import re
from collections.abc import Iterable
from dataclasses import replace
from math import prod

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.quantities import Quantity

_NAMES = r"tensor|pipeline|context|model"
_STATED = (
    re.compile(r"\b(tp|pp|cp)\s?(?:=|:|of)?\s?(\d+)\b", re.IGNORECASE),
    re.compile(
        rf"\b({_NAMES})[ -]?(?:model[ -]?)?parallel\w*(?: size| degree)?\s?(?:=|:|of)?\s?(\d+)\b", re.IGNORECASE
    ),
)
_NAMED = re.compile(
    rf"\b(?:{_NAMES})[ -]?(?:model[ -]?)?parallel|\b(?:TP|PP)\s?[=:]?\s?\d"
    r"|\b(?:TP|PP) ?[/+,] ?(?:TP|PP|DP)\b|\b[34]D[ -]parallel"
)


def with_replicas(reading: Reading) -> Reading:
    """Facts with the replicas of the model in the place of N; 0 where it is not said how many workers share one."""
    by_row: dict[int, dict[Quantity, list[Fact]]] = {}
    for fact in reading.of(Quantity.SPLIT, Quantity.REPLICAS):
        by_row.setdefault(fact.place.row, {}).setdefault(fact.quantity, []).append(fact)
    stated = _stated(reading)
    if not by_row and stated == 1:
        return reading
    return replace(reading, facts=tuple(_with(fact, by_row.get(fact.place.row, {}), stated) for fact in reading.facts))


def _with(fact: Fact, row: dict[Quantity, list[Fact]], stated: int) -> Fact:
    counted, split = row.get(Quantity.REPLICAS, []), row.get(Quantity.SPLIT, [])
    if len(counted) == 1:
        return replace(fact, replicas=int(counted[0].number.value))
    sharing = prod(_counts(split)) if split else stated
    if fact.n is None or sharing < 1 or fact.n % sharing:
        return replace(fact, replicas=0)
    return replace(fact, replicas=fact.n // sharing)


def _counts(facts: Iterable[Fact]) -> list[int]:
    return [int(fact.number.value) for fact in facts]


def _stated(reading: Reading) -> int:
    """Workers that hold one model by the words: 1 where they name none, 0 where they do not say how many."""
    headings = " ".join(column.heading for column in reading.columns)
    text = f"{reading.words.text} {headings}"
    found = {match[1].lower(): int(match[2][:6]) for pattern in _STATED for match in pattern.finditer(text)}
    if found:
        return prod(found.values())
    return 0 if _NAMED.search(text) else 1
