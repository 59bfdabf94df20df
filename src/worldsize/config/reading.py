"""From plain values, of flags or of a TOML file, to settings; the user's mistakes become one line."""

import difflib
import tomllib
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from worldsize.config.base import Settings
from worldsize.config.study import CellChoice
from worldsize.config.text import READERS, read_values, share
from worldsize.errors import SettingsError, UsageError

PRESETS = Path(__file__).parent.parent / "presets"

S = TypeVar("S", bound=Settings)

HOW_MUCH = ("epochs", "steps", "budget")
"""Settings that together say how much is measured."""
EXCLUDING = (HOW_MUCH, ("batch_sizes", "global_batch"))
"""Settings that take the place of each other: where one is given, none of the others is kept."""


def laid_over(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is given on top of a preset, a file or an earlier run: of what excludes each other, what is given wins."""
    given = _read(given)
    gone = {name for group in EXCLUDING if given.keys() & {*group} for name in group}
    return {**{name: value for name, value in base.items() if name not in gone}, **given}


def validated(kind: type[S], values: dict[str, Any], source: str = "") -> S:
    """Build settings from plain values; raise UsageError with one line for the first mistake.

    `source` names where the values came from (a file) and starts the message.
    """
    try:
        return kind(**_read(values, source))
    except ValidationError as error:
        text = message_of(error, kind)
        raise SettingsError(f"{source}: {text}" if source else text) from None


def _read(values: dict[str, Any], source: str = "") -> dict[str, Any]:
    try:
        return read_values(values)
    except ValueError as error:
        raise UsageError(f"{source}: {error}" if source else str(error)) from None


def message_of(error: ValidationError, kind: type[Settings]) -> str:
    """The first mistake in a line: what was given, what is allowed."""
    errors = error.errors()
    # A key that is misspelt is missing as well.
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    keys = [str(part) for part in first["loc"] if part != "__root__"]
    if first["type"] == "extra_forbidden":
        return f"unknown key {'.'.join(keys)!r}; {_nearest(keys[-1], CellChoice if len(keys) > 1 else kind)}"
    if first["type"] == "missing":
        return f"{'.'.join(keys)} is missing"
    if first["type"] == "value_error":
        message = first["msg"].removeprefix("Value error, ")
        return f"{'.'.join(keys)}: {_given(first)} was given; {message}" if keys else message
    if len(errors) > 1 and keys[0] in ALTERNATIVES:  # one error for each of what the field may be
        return f"{keys[0]}: {_shown(first['input'])} was given; {ALTERNATIVES[keys[0]]} is allowed"
    return f"{'.'.join(keys)}: {_given(first)} was given; {_allowed(first)} is allowed"


ALTERNATIVES = {"bucket_mb": "a number of MB above 0, or auto,", "hosts": "a number of hosts from 2 on, auto or none"}
"""What is allowed in fields of several kinds."""
KINDS = {"int": "a whole number", "float": "a number", "finite": "a finite number", "bool": "true or false"}
KINDS |= {"string": "text", "path": "a path", "model": "a table", "dict": "a table"}
BOUNDS = {"greater_than_equal": "at least {ge}", "greater_than": "more than {gt}"}
BOUNDS |= {"less_than_equal": "at most {le}", "less_than": "less than {lt}"}


MAX_SHOWN = 60
"""Characters of a value that are shown."""


def _allowed(error: ErrorDetails) -> str:
    """What is allowed, by the kind of pydantic's error (https://docs.pydantic.dev/latest/errors/validation_errors/)."""
    kind, bounds = error["type"], error.get("ctx", {})
    if kind in BOUNDS:
        number = _percent if _is_share(error) else _number
        return BOUNDS[kind].format(**{name: number(value) for name, value in bounds.items()})
    if kind == "literal_error":
        return str(bounds["expected"])
    if kind in ("tuple_type", "list_type"):
        return "a list"
    if kind == "too_short":
        return f"a list of at least {bounds['min_length']}"
    if kind == "string_pattern_mismatch":
        return f"text like {bounds['pattern']}"
    return KINDS.get(kind.partition("_")[0], f"what pydantic says ({error['msg']})")


def _given(error: ErrorDetails) -> str:
    """What was given; a share in percent, as it is usually typed."""
    value = error["input"]
    number = type(value) in (int, float) and isfinite(value)
    return _percent(value) if number and _is_share(error) else _shown(value)


def _is_share(error: ErrorDetails) -> bool:
    return READERS.get(str(error["loc"][-1]) if error["loc"] else "") is share


def _percent(value: float) -> str:
    return f"{100 * value:g}%"


def _shown(value: Any) -> str:
    """What was given, short enough for a line."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _nearest(key: str, kind: type[Settings]) -> str:
    near = difflib.get_close_matches(key.replace("-", "_"), kind.model_fields, n=1, cutoff=0.65)
    if near:
        return f"did you mean {near[0]!r}?"
    if kind is CellChoice:
        return f"a cell has {', '.join(kind.model_fields)}"
    command = "audit" if kind.__name__ == "AuditSettings" else "study"
    return f"the flags of `worldsize {command} --help` are the keys"


def preset_names() -> list[str]:
    """Names of the presets that come with worldsize (files in presets/)."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def read_study(path_or_preset: str) -> dict[str, Any]:
    """Read the values of a study from a preset's name or a TOML file; raise UsageError if that fails.

    The values are not validated yet: flags of the command line still go on top of them.
    """
    path = Path(path_or_preset)
    if path_or_preset in preset_names():
        path = PRESETS / f"{path_or_preset}.toml"
    elif path.suffix != ".toml":
        raise UsageError(
            f"unknown preset {path_or_preset!r}; known: {', '.join(preset_names())}\n"
            "To run a study of your own, give the path of a .toml file."
        )
    try:
        return _read(tomllib.loads(path.read_text(encoding="utf-8")), str(path))
    except FileNotFoundError:
        raise UsageError(f"no such study file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is no TOMLDecodeError
        raise UsageError(f"{path} cannot be read as a TOML study: {error}") from None
