"""A command that tries an advice, on the nodes on which the study ran: with the flags of the launch that was typed."""

import shlex
from collections.abc import Sequence

from pydantic import ValidationError

from worldsize.analysis.advice.commands import value_text
from worldsize.config import LaunchSettings

HAVE_LAUNCHERS = ("study", "train")
"""The commands that run on the nodes of a cluster; the others run on this machine alone."""
NEVER = ("print_script",)


def launched_as(typed: Sequence[str], command: str | None) -> str | None:
    """The command of an advice with the launcher of the command that was typed for the study.

    None where the study ran on the nodes of a cluster, and the command can only run on one machine.
    """
    launch = _launch(typed)
    if command is None or launch.launcher == "local":
        return command
    if shlex.split(command)[1] not in HAVE_LAUNCHERS:
        return None
    given = {name: value for name in LaunchSettings.model_fields if (value := getattr(launch, name)) is not None}
    flags = [(f"--{name.replace('_', '-')}", value_text(value)) for name, value in given.items() if name not in NEVER]
    return f"{command} {shlex.join(word for pair in flags for word in pair)}"


def _launch(typed: Sequence[str]) -> LaunchSettings:
    """What the flags say of the launch; this machine where they cannot be read."""
    found = {}
    for number, word in enumerate(typed):
        flag, equals, value = word.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        if flag.startswith("--") and name in LaunchSettings.model_fields and name not in NEVER:
            found[name] = value if equals else "".join(typed[number + 1 : number + 2])
    try:
        return LaunchSettings.model_validate(found)
    except ValidationError:
        return LaunchSettings()
