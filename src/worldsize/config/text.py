"""What a person writes for a value: a flag, a TOML file and a function of the package take the same text."""

from collections.abc import Callable
from typing import Any

from worldsize.config.base import SIZES, quantity


def names(text: str) -> tuple[str, ...]:
    """`a,b` as a tuple."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def numbers(text: str) -> tuple[int, ...]:
    """`1,2` as a tuple of whole numbers; raise ValueError for anything else."""
    try:
        return tuple(int(part) for part in names(text))
    except ValueError:
        raise ValueError(f"{text!r} was given; whole numbers separated by commas are allowed") from None


def number_or_word(text: str) -> float | str:
    """`5` as a number, `auto` as it is."""
    try:
        return float(text)
    except ValueError:
        return text


def hosts_or_word(text: str) -> int | str | None:
    """`4`, `auto` or `none`; raise ValueError for anything else."""
    if text in ("auto", "none"):
        return None if text == "none" else text
    if text.removeprefix("-").isdecimal():
        return int(text)
    raise ValueError(f"{text!r} was given; a number of hosts from 2 on, auto or none is allowed")


def size(text: str) -> int:
    """`16MiB` or `4096` in bytes; raise ValueError for anything else."""
    return int(text) if text.isdecimal() else round(quantity(text, SIZES, "a size such as 16MiB or 4096"))


def share(text: str) -> float:
    """`3%` or `0.03` as 0.03; raise ValueError for anything else, also for `3`, which may mean either."""
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} was given; a share such as 3% or 0.03 is allowed") from None
    if 1 < value <= 100 and not text.endswith("%"):
        raise ValueError(f"{text!r} was given; did you mean {text}%? A share such as 3% or 0.03 is allowed")
    return value


def one(text: str) -> tuple[str, ...]:
    """Text in which a comma separates nothing, as the only one."""
    return (text,)


READERS: dict[str, Callable[[str], Any]] = {
    "script": one,
    "strategies": names,
    "leave_out": names,
    "log": names,
    "collectives": names,
    "slow_link": names,
    "slow_rank": names,
    "world_sizes": numbers,
    "batch_sizes": numbers,
    "target_interval": share,
    "resolution": share,
    "target_accuracy": share,
    "fail_above": share,
    "bucket_mb": number_or_word,
    "top_bytes": size,
    "hosts": hosts_or_word,
}
"""How text is read that is no plain value of its field; by the field's name."""


def read_values(values: dict[str, Any]) -> dict[str, Any]:
    """Values by the names of their fields, text read where it has to be; `world-sizes` is `world_sizes`, and 2 is (2,).

    Those of cells that are named one by one likewise.

    Raises ValueError, which names the key, for text that cannot be read.
    """
    read = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name in read:
            raise ValueError(f"{name} is given twice, with - and with _: leave one out")
        if name == "cells" and isinstance(value, list | tuple):
            value = [read_values(cell) if isinstance(cell, dict) else cell for cell in value]
        try:
            if isinstance(value, str) and name in READERS:
                value = READERS[name](value)
            elif type(value) is int and READERS.get(name) is numbers:
                value = (value,)
            read[name] = value
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return read
