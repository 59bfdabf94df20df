"""What the settings say of a flag, in words: its default, what is allowed, what kind of value it takes."""

import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from worldsize.cli.complete import registered
from worldsize.config.text import READERS, share, size
from worldsize.factories import GRAMMAR

LIMITS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
UNTOLD = 1_000_000
"""A bound this high only keeps slips of the pen out."""
KINDS: dict[Any, str] = {int: "INT", float: "NUMBER", Path: "FOLDER"}
OPEN = {"model": "models", "data": "data sets", "strategy": "strategies", "strategies": "strategies"}
"""Flags that take a registered name, or a user's own by reference."""
FURTHER = {"model": ("torchvision:NAME",)}


def default_text(name: str, field: FieldInfo) -> str:
    """The default of a field as one would type it, or what is done without it."""
    extra, value = field.json_schema_extra, field.default
    if isinstance(extra, dict) and "absent" in extra:
        return str(extra["absent"])
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    if READERS.get(name) is share:
        return f"{value:.0%}"
    if READERS.get(name) is size:
        return f"{value / 2**20:g}MiB"
    return str(value)


def allowed_text(name: str, field: FieldInfo) -> str:
    """What may be given, as far as registries, types and bounds say it; empty where any text or number may be."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and extra.get("allowed"):
        return str(extra["allowed"])
    if name in OPEN:
        return listed((*registered(OPEN[name]), *FURTHER.get(name, ()), *GRAMMAR.split(" or ")))
    bounds = [bound for part in (field, *parts_of(field.annotation)) for bound in bounds_of(part)]
    return listed([*words(field), *([" and ".join(bounds)] if bounds else [])])


def words(field: FieldInfo) -> tuple[str, ...]:
    """The words that a setting may be."""
    literals = (part for part in parts_of(field.annotation) if get_origin(part) is Literal)
    return tuple(str(word) for literal in literals for word in get_args(literal))


def kind_text(name: str, field: FieldInfo) -> str:
    """What stands behind the flag: `INT`, `NAME,...`; empty for a flag without a value."""
    annotation = field.annotation
    parts = [get_args(part)[0] if get_origin(part) is Annotated else part for part in parts_of(annotation)]
    if parts == [bool]:
        return ""
    several = any(get_origin(part) is tuple for part in (annotation, *get_args(annotation))) and name in READERS
    if any(get_origin(part) is Literal for part in parts) or name in OPEN:
        kind = "NAME"
    else:
        kind = next((KINDS[part] for part in parts if part in KINDS), "TEXT")
    return f"{kind},..." if several else kind


def listed(words: Sequence[str]) -> str:
    """`a, b or c`."""
    *first, last = words or [""]
    return f"{', '.join(first)} or {last}" if first else last


def parts_of(annotation: Any) -> Iterator[Any]:
    """The parts of a union and of a tuple, without None and `...`; bounds stay with what they belong to."""
    if get_origin(annotation) in (Union, types.UnionType, tuple):
        for each in get_args(annotation):
            yield from parts_of(each)
    elif annotation not in (type(None), Ellipsis):
        yield annotation


def bounds_of(part: Any) -> list[str]:
    """`at least 1`, of a field or of an annotated type."""
    fields = part.__metadata__ if get_origin(part) is Annotated else (part,)
    kept = [each for field in fields for each in getattr(field, "metadata", ())]
    return [
        f"{word} {value:g}"
        for each in kept
        for name, word in LIMITS.items()
        if (value := getattr(each, name, None)) is not None and value < UNTOLD
    ]
