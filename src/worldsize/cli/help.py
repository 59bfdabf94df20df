"""The help of a command: its flags in panels, each with its default and with what is allowed.

Default and allowed values stand nowhere but in the settings (`config/`), and are read there when help is asked for:
`worldsize --help`, and a command that is run, read none of it. typer's own panels have six columns, which leave
22 signs for the sentence on a terminal of 80 and cut words off; these have two.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand

from worldsize.cli.complete import one_of, some_of

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

ARGUMENTS = "What it works on"
TRAIN = "What to train"
VARY = "What to vary"
MEASURE = "How to measure"
RECIPE = "Recipe"
WHERE = "Where to run"
STOPS = "When it stops, or a worker fails"
OUTPUT = "Output"
PANELS = (ARGUMENTS, TRAIN, VARY, MEASURE, RECIPE, WHERE, STOPS, OUTPUT)
"""In this order; in each panel the flags stand as in the command, most used first."""


class PanelCommand(TyperCommand):
    """A command whose help is drawn here."""

    models: ClassVar[tuple[str, ...]] = ()
    """Settings (classes of `config`) that its flags belong to; the first that has a field of the name counts."""
    renamed: ClassVar[dict[str, str]] = {}
    """Flags that are not named as their field."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write usage, description and panels."""
        import sys

        from worldsize.cli.help_page import drawn
        from worldsize.cli.streams import in_its_signs

        # click writes it past our streams: as UTF-8, where it takes theirs for a mistake.
        formatter.write(in_its_signs(drawn(self, ctx), sys.stdout.encoding or "utf-8"))

    def field(self, name: str) -> "FieldInfo | None":
        """The field of the settings behind a flag, if there is one."""
        from worldsize import config

        for model in self.models:
            found = getattr(config, model).model_fields.get(self.renamed.get(name, name))
            if found is not None:
                return found  # type: ignore[no-any-return]
        return None


ONE_CELL = {"strategy": "strategies", "world_size": "world_sizes", "batch_size": "batch_sizes"}
"""Flags of one configuration → the settings of a study with one cell."""


def settings_of(*models: str, **renamed: str) -> type[PanelCommand]:
    """The kind of a command whose flags are fields of these settings."""
    return type("PanelCommand", (PanelCommand,), {"models": models, "renamed": renamed})


def flag(
    text: str,
    panel: str,
    *names: str,
    metavar: str | None = None,
    default: str | None = None,
    complete: Any = None,
    choices: str = "",
    several: str = "",
) -> Any:
    """A flag: its sentence and its panel.

    `metavar` says what a text consists of, `default` is for what has no field in the settings. `choices` names the
    field whose words the shell completes, `several` one that takes some of them, separated by commas.
    """
    if choices or several:
        complete = one_of(partial(words_of, choices)) if choices else some_of(partial(words_of, several))
    return typer.Option(
        *names,
        help=text,
        rich_help_panel=panel,
        metavar=metavar,
        show_default=default or False,
        autocompletion=complete,
    )


def words_of(name: str) -> tuple[str, ...]:
    """The words that a setting may be."""
    from worldsize.cli.help_text import words
    from worldsize.config import CommSettings, CompareSettings, LaunchSettings, StudySettings, VerifySettings

    models = (StudySettings, LaunchSettings, CompareSettings, VerifySettings, CommSettings)
    field = next(model.model_fields[name] for model in models if name in model.model_fields)
    return words(field) or tuple(field.default)  # of collectives, all are the default


def argument(text: str, *, complete: Any = None) -> Any:
    """What a command works on."""
    return typer.Argument(help=text, rich_help_panel=ARGUMENTS, show_default=False, autocompletion=complete)
