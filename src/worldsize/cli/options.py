"""The flags that belong to no settings: what a command does with its results, and how it goes on.

Those of the settings are made from their fields (flags.py).
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from worldsize.cli import complete
from worldsize.cli.panels import ARGUMENTS, MEASURE, OUTPUT, STOPS

if TYPE_CHECKING:
    from worldsize.study.resuming import Resume as Resumed


def flag(
    text: str, panel: str, *names: str, metavar: str | None = None, default: str = "off", completion: Any = None
) -> Any:
    """A flag: its sentence, its panel, and what is done without it; `metavar` says what a text consists of."""
    return typer.Option(
        *names,
        help=text,
        rich_help_panel=panel,
        metavar=metavar,
        show_default=default,
        autocompletion=completion,
    )


def argument(text: str, *, completion: Any = None) -> Any:
    """What a command works on."""
    return typer.Argument(help=text, rich_help_panel=ARGUMENTS, show_default=False, autocompletion=completion)


Run = Annotated[Path, argument("A run folder.", completion=complete.run_folder)]

Resume = Annotated[bool, flag("Resume the study in --out: run only what is missing.", STOPS, "--resume")]
Anew = Annotated[
    bool,
    flag("With --resume, after your code has changed: archive the old results and measure again.", STOPS, "--anew"),
]

Out = Annotated[
    Path | None,
    flag("Run folder.", OUTPUT, metavar="FOLDER", default="a new one under runs/", completion=complete.out),
]
Json = Annotated[
    bool, flag("Print one JSON object on stdout and nothing else; progress goes to stderr.", OUTPUT, "--json")
]
SamplesPerStep = Annotated[
    int | None,
    flag("Samples per process and step, if not the first dimension of its batches.", MEASURE, default="counted"),
]
PrintToml = Annotated[
    bool, flag("Print the settings as a TOML file to start from; run nothing.", OUTPUT, "--print-toml")
]


def resuming(*, resume: bool, anew: bool) -> "Resumed":
    """How the study is gone on with; raise UsageError for --anew alone."""
    if anew and not resume:
        from worldsize.errors import UsageError

        raise UsageError("--anew was given without --resume: it is for a folder that holds a study of other code")
    return "anew" if anew else resume
