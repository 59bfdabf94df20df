"""`worldsize study … --print-toml`: the settings of a study as a file to start from.

Every key stands in the file with its sentence from the help: what was given as a key, all else as a comment with its
default.
"""

import os
import sys
from typing import TYPE_CHECKING, Any

import tomlkit

from worldsize.cli.console import lines
from worldsize.cli.flags import TAKEN, Flag
from worldsize.cli.help_text import allowed_text, default_text
from worldsize.cli.panels import PANELS
from worldsize.errors import UsageError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from worldsize.config import StudySettings

WIDTH = 98
"""Columns of a comment, without its sign."""
BY_PRESETS = ("experiment", "sweep")
"""Keys without a flag, which presets give."""


def print_study(settings: "StudySettings", *, as_json: bool) -> None:
    """Print the file, in UTF-8 as TOML is; of ranks that others have started the first prints it."""
    if as_json:
        raise UsageError("--print-toml and --json exclude each other: give one of them")
    if os.environ.get("RANK", "0") == "0":
        sys.stdout.flush()
        sys.stdout.buffer.write(study_file(settings).encode())


def study_file(settings: "StudySettings") -> str:
    """The settings as TOML that `worldsize study FILE` reads again to the same settings."""
    given = settings.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    cells = given.pop("cells", [])
    for name in ("strategies", "world_sizes", "batch_sizes") if cells else ("strategies",) if settings.script else ():
        given.pop(name, None)  # they follow from the cells, or from the scripts
    file = tomlkit.document()
    _say(file, "A study of worldsize; run it by: worldsize study FILE")
    _say(file, "A line with a # has its default. Flags go on top of what stands here.")
    for name in BY_PRESETS:
        if name in given:
            file.add(name, given.pop(name))
    for panel, flags in _panels().items():
        file.add(tomlkit.nl())
        _say(file, f"--- {panel} ---")
        for flag in flags:
            field = type(settings).model_fields[flag.name]
            _say(file, _sentence(flag, field))
            if flag.name in given:
                file.add(flag.name, given.pop(flag.name))
            elif _is_absent(field):
                file.add(tomlkit.comment(f"{flag.name} ="))
            else:
                default = field.get_default()
                value = tomlkit.item(list(default) if isinstance(default, tuple) else default)
                file.add(tomlkit.comment(f"{flag.name} = {value.as_string()}"))
    assert not given, f"keys without a flag: {given}"
    if cells:
        file.add("cells", _tables(cells))
    return tomlkit.dumps(file)


def _panels() -> dict[str, list[Flag]]:
    """The flags that are keys of a study, by panel."""
    keys = {name: flag for name, flag in TAKEN["study"].items() if flag.settings == "StudySettings"}
    found = {panel: [keys[name] for name in names.split() if name in keys] for panel, names in PANELS.items()}
    return {panel: flags for panel, flags in found.items() if flags}


def _sentence(flag: Flag, field: "FieldInfo") -> str:
    """What the help says of a key; of its default only where no value stands for it."""
    allowed = "true or false" if field.annotation is bool else allowed_text(flag.name, field)
    default = f"default: {default_text(flag.name, field)}" if _is_absent(field) else ""
    details = "; ".join(filter(None, [allowed, default]))
    return f"{flag.help} [{details}]" if details else flag.help


def _is_absent(field: "FieldInfo") -> bool:
    return field.get_default() is None


def _say(file: tomlkit.TOMLDocument, text: str) -> None:
    for line in lines(text, WIDTH):
        file.add(tomlkit.comment(line))


def _tables(cells: list[dict[str, Any]]) -> tomlkit.items.AoT:
    """Cells that were named one by one."""
    every = tomlkit.aot()
    for cell in cells:
        table = tomlkit.table()
        table.update(cell)
        every.append(table)
    return every
