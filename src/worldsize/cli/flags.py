"""The flags that are fields of the settings: a command says whose it takes, and typer gets them in its signature.

A flag is written nowhere else: its name, type and help are those of the field (fields.py), its place in the help is in
panels.py. What holds without it is said by the settings alone.
"""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from worldsize.cli import complete
from worldsize.cli.fields import Field, fields
from worldsize.cli.panels import ALSO, METAVARS, ORDER, PANEL_OF, PANELS, REPEATED, TO_SWITCH_OFF
from worldsize.errors import SettingsError, UsageError, WorldsizeError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

Command = Callable[..., None]

ONE_CELL = {"strategy": "strategies", "world_size": "world_sizes", "batch_size": "batch_sizes"}
"""Flags of one configuration → the settings of a study with one cell."""
CELL = "CellSettings"
"""The settings of one configuration."""
TYPES: dict[str, type] = {"bool": bool, "Path": Path}
"""What typer reads; all else is text, which the settings read: they say what is allowed."""
NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}
"""Kinds that are numbers."""
UNITS = {"Duration": "TIME", "Rate": "RATE", "Size": "SIZE", "Bytes": "SIZE", "Share": "SHARE"}
UNITS |= {"int": "INT", "float": "NUMBER"}
"""What stands behind a flag whose field has such a type."""


@dataclass(frozen=True)
class Flag:
    """A flag, and the field that it sets."""

    name: str
    settings: str
    field: str

    @property
    def single(self) -> bool:
        """Whether it is the only entry of a field that takes several."""
        return self.name != self.field and fields(self.settings)[self.field].several

    @property
    def word(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def written(self) -> Field:
        """The field as it is written; a single entry is that of a cell."""
        return fields(CELL)[self.name] if self.single else fields(self.settings)[self.field]

    @property
    def help(self) -> str:
        """What is said of it; where the field itself says nothing, it means what it means for a cell."""
        return self.written.help or fields(CELL)[self.name].help

    @property
    def setting(self) -> "FieldInfo":
        """The field as pydantic has it, with its default and what is allowed; loads the settings."""
        from worldsize import config

        found: FieldInfo = getattr(config, self.settings).model_fields[self.field]
        return found

    def read(self, value: Any) -> Any:
        """A value as the settings take it. Raises UsageError for text that cannot be read."""
        from worldsize.config.text import READERS

        number = NUMBERS.get(self.written.kind) if isinstance(value, str) and not self.written.several else None
        if number is not None:
            with suppress(ValueError):  # the settings refuse what is none
                value = number(value)
        if self.single:
            return (value,)
        if not isinstance(value, str) or self.field not in READERS:
            return value
        try:
            return READERS[self.field](value)
        except ValueError as error:
            raise UsageError(f"{self.word}: {error}") from None


class Flags:
    """The flags of settings that a command was given."""

    def __init__(self, given: dict[Flag, Any]) -> None:
        self._given = given

    def of(self, settings: str) -> dict[str, Any]:
        """Those of one class of settings, by the names of its fields. Raises UsageError for what cannot be read."""
        return {flag.field: flag.read(value) for flag, value in self._given.items() if flag.settings == settings}


TAKEN: dict[str, dict[str, Flag]] = {}
"""Command → its flags of settings, by name."""


def by_flag(error: WorldsizeError, message: str, command: str, arguments: Sequence[str]) -> str:
    """The message of an error that names the flags of the command in place of fields.

    Behind the name of a preset or file only the first, where it was typed: then it is not the file that is wrong. In
    the middle of a sentence only where settings are wrong: elsewhere a file may have such a name.
    """
    source, _, behind = message.partition(": ")
    for before, text in (("", message), (source, behind)):
        field = re.match(r"([a-z_]+)(\.\d+)?(?=: | is missing)", text)
        for flag in TAKEN.get(command, {}).values():
            typed = any(argument == flag.word or argument.startswith(f"{flag.word}=") for argument in arguments)
            if field and flag.field == field[1] and (typed or not before):
                return f"{flag.word}{text[field.end() :]}"
    from_file = Path(source).suffix == ".toml"
    return _flags_named(message, command) if isinstance(error, SettingsError) and not from_file else message


def _flags_named(text: str, command: str) -> str:
    """Fields of several words become flags; one word, such as `steps`, may be a word of the sentence."""
    flags = {flag.field: flag.word for flag in TAKEN.get(command, {}).values()}
    return re.sub(
        r"(?<![\w\-'\"./=])[a-z]+(?:_[a-z]+)+(?![\w'\"./=(])",
        lambda found: flags.get(found[0], found[0]),
        text,
    )


def takes(
    *settings: str, only: str = "", without: str = "", first: str = "", panel: str = "", **renamed: str
) -> Callable[[Command], Command]:
    """Give a command the flags of these settings; its first argument is then a `Flags` with what was given.

    All of them, `only` some, or all `without` some; `first` stand at the head of their panels. `renamed` are flags that
    are not named as their field. All stand in `panel` if it is given, else each in its own.
    """

    def taking(command: Command) -> Command:
        found = {flag.name: flag for kind in settings for flag in _flags(kind, renamed)}
        assert found.keys() >= {*f"{only} {without} {first}".split()}, f"{command.__name__}: no such flags"
        wanted = {*(only.split() or found)} - {*without.split()}
        TAKEN[command.__name__] = taken = {name: flag for name, flag in found.items() if name in wanted}

        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {flag: values.pop(name) for name, flag in taken.items()}
            command(Flags({flag: value for flag, value in given.items() if value not in (None, [])}), **values)

        own = [*inspect.signature(command).parameters.values()][1:]
        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        parameters += [_parameter(flag, panel) for flag in taken.values()]
        parameters.sort(key=lambda each: _place(each, first.split()))
        called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return called

    return taking


def _flags(settings: str, renamed: dict[str, str]) -> list[Flag]:
    """The fields that are flags; one that is named differently takes the place of a field of its name."""
    written = fields(settings)
    names = {field: field for field in written if field not in renamed.values()}
    names |= {name: field for name, field in renamed.items() if field in written}
    return [Flag(name, settings, field) for name, field in names.items() if name in PANEL_OF]


def _parameter(flag: Flag, panel: str) -> inspect.Parameter:
    """The flag as typer takes it; it says nothing where it is not given."""
    written, word = flag.written, flag.word
    kind: Any = str if written.several else TYPES.get(written.kind, str)
    if flag.name in REPEATED:
        kind = list[str]
    option = typer.Option(
        None,
        f"{word}/--no-{word[2:]}" if flag.name in TO_SWITCH_OFF else word,
        *([ALSO[flag.name]] if flag.name in ALSO else []),
        help=flag.help,
        rich_help_panel=panel or PANEL_OF[flag.name],
        metavar=METAVARS.get(flag.name) or UNITS.get(written.kind),
        show_default=False,
        autocompletion=complete.OF_FLAGS.get(flag.name) or _words(written),
    )
    return inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind | None)


def _words(written: Field) -> complete.Completion | None:
    """Completion by the words that a field may be."""
    if not written.words:
        return None
    return (complete.some_of if written.several else complete.one_of)(lambda: written.words)


def _place(parameter: inspect.Parameter, first: list[str]) -> tuple[int, bool, int]:
    """Panels in their order; in each, a command's own flags stand before those of settings."""
    of_settings = isinstance(parameter.default, typer.models.OptionInfo)
    info = parameter.default if of_settings else parameter.annotation.__metadata__[0]
    place = ORDER[parameter.name] if of_settings else -1
    return [*PANELS].index(info.rich_help_panel), parameter.name not in first, place
