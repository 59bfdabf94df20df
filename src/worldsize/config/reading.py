"""From plain values, of flags or of a TOML file, to settings; the user's mistakes become one line."""

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from worldsize.config.base import Settings
from worldsize.errors import UsageError

PRESETS = Path(__file__).parent.parent / "presets"

S = TypeVar("S", bound=Settings)

HOW_MUCH = ("epochs", "steps", "budget")
"""Settings that together say how much is measured."""
EXCLUDING = (HOW_MUCH, ("batch_sizes", "global_batch"))
"""Settings that take the place of each other: where one is given, none of the others is kept."""


def laid_over(base: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """What is given on top of a preset, a file or an earlier run: of what excludes each other, what is given wins."""
    gone = {name for group in EXCLUDING if given.keys() & {*group} for name in group}
    return {**{name: value for name, value in base.items() if name not in gone}, **given}


def validated(kind: type[S], values: dict[str, Any], source: str = "") -> S:
    """Build settings from plain values; raise UsageError with one line for the first mistake.

    `source` names where the values came from (a file) and starts the message.
    """
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "__root__")
        if first["type"] == "extra_forbidden":
            known = ", ".join(sorted(kind.model_fields))
            text = f"unknown key {where!r}; known: {known}"
        elif where:
            text = f"{where}: {first['input']!r} was given; {first['msg'][:1].lower()}{first['msg'][1:]}"
        else:
            text = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{source}: {text}" if source else text) from None


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
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no such study file: {path}") from None
    except (OSError, ValueError, RecursionError) as error:  # a number of 5,000 digits is no TOMLDecodeError
        raise UsageError(f"{path} cannot be read as a TOML study: {error}") from None
