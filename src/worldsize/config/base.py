"""What all settings share: keyword-only, immutable, and quantities with units."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

Duration = str
"""A time with its unit, such as `90s`."""
Rate = str
"""A bandwidth with its unit, such as `1gbit`."""
Size = str
"""An amount of memory with its unit, such as `3GiB`."""
Bytes = int
"""The same in bytes; as text, such as `16MiB`, it is read in config/text.py."""
Share = float
"""A part of one, such as 0.03; as text, such as `3%`, it is read in config/text.py."""

MAX_WORKERS = 1_000_000
"""A larger world is a slip of the pen."""
MAX_BATCH = 2**31
"""Samples per worker and step; with MAX_WORKERS of them a global batch fits into 64 bits."""


class Settings(BaseModel):
    """Base of all settings: keyword-only, immutable, an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _truth_is_no_number(cls, values: Any) -> Any:
        """`epochs = true` would train one epoch."""
        for name, value in values.items() if isinstance(values, dict) else ():
            field = cls.model_fields.get(name)
            if isinstance(value, bool) and field is not None and field.annotation is not bool:
                raise ValueError(f"{name}: {str(value).lower()} was given; it is no switch")
        return values


def absent(meaning: str, default: Any = None, *, allowed: str = "", **limits: Any) -> Any:
    """A field that others decide where it is not given; `meaning` is what the help of its flag shows as its default.

    `allowed` is what the help says of its values, where a validator looks at them and no bound of the type.
    """
    return Field(default=default, json_schema_extra={"absent": meaning, "allowed": allowed}, **limits)


def quantity(text: str, units: dict[str, float], allowed: str, name: str = "") -> float:
    """A number and its unit, such as `1gbit`, in the base unit; raise ValueError for anything else.

    `name` is that of the field, with which the error then begins.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", text.strip())
    if not found or found[2].lower() not in units:
        raise ValueError(f"{name}{': ' if name else ''}{text!r} was given; {allowed} is allowed")
    return float(found[1]) * units[found[2].lower()]


RATES = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
DELAYS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
TIMES = {**DELAYS, "min": 60.0, "h": 3600.0}
SIZES = {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}
