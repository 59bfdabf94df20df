"""A command that tries an advice, on the nodes on which the study ran: with the flags of the launch that was typed."""

import shlex
from collections.abc import Sequence

from pydantic import ValidationError

from worldsize.analysis.advice.commands import value_text
from worldsize.config import LaunchSettings

HAVE_LAUNCHERS = ("study", "train")
"""The commands that run on the nodes of a cluster; the others run on this machine alone."""
NEVER = ("print_script",)
BY_HAND = "--master-ip"
"""With which a study is started by hand on each node."""


def launched_as(typed: Sequence[str], command: str | None, started_by: Sequence[str] = ()) -> str | None:
    """The command of an advice with the launcher of the command that was typed for the study.

    None where the study ran on the nodes of a cluster, and the command can only run on one machine. `started_by` is the
    torchrun that started its workers, if one did.
    """
    if command is not None and _sizes(shlex.split(command)) == {1}:
        return command  # one worker needs no other node
    if command is not None and any(word.partition("=")[0] == BY_HAND for word in typed):
        return None  # to be typed on each node, with the rank of each
    if started_by and command is not None:
        return _by_torchrun(started_by, command)
    launch = _launch(typed)
    if command is None or launch.launcher == "local":
        return command
    if shlex.split(command)[1] not in HAVE_LAUNCHERS:
        return None
    given = {name: value for name in LaunchSettings.model_fields if (value := getattr(launch, name)) is not None}
    flags = [(f"--{name.replace('_', '-')}", value_text(value)) for name, value in given.items() if name not in NEVER]
    return f"{command} {shlex.join(word for pair in flags for word in pair)}"


def _by_torchrun(words: Sequence[str], command: str) -> str | None:
    """The command behind a torchrun that starts its workers; plain where one node is enough for it without."""
    typed = shlex.split(command)
    nodes = int(_after("--nnodes", words) or 1)
    sizes = _sizes(typed)
    most = max(sizes, default=nodes * int(_after("--nproc-per-node", words) or 1))
    # torchrun starts so many workers, and the command has them, or one of them.
    fits = typed[1] in HAVE_LAUNCHERS and sizes <= {1, most} and most % nodes == 0
    if not fits:
        return command if nodes == 1 else None
    place = list(words).index("--nproc-per-node") + 1
    return shlex.join([*words[:place], str(most // nodes), *words[place + 1 :], *typed])


def _sizes(typed: Sequence[str]) -> set[int]:
    """The world sizes of a command; none where it gives none."""
    given = _after("--world-sizes", typed) or _after("--world-size", typed)
    return {int(size) for size in given.split(",") if size.isdigit()}


def _after(flag: str, words: Sequence[str]) -> str:
    """The value of a flag; empty where it is not given."""
    words = list(words)
    return words[words.index(flag) + 1] if flag in words else ""


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
