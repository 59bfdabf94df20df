"""A person's own command behind the flags of `worldsize`: what stands behind it is its own."""

import shlex
from collections.abc import Sequence
from typing import Any

from worldsize.cli.help import PanelCommand
from worldsize.errors import UsageError

OURS = ("--world-sizes", "--budget", "--fail-above", "--keep-outputs", "--in-place", "--one-at-a-time")
"""Flags of `worldsize study` that hardly any script has."""
END = "--"
"""Stands before a command that is no Python file, such as that of a launcher."""


class TakesCommand(PanelCommand):
    """A command of `worldsize` behind whose flags a person's own may stand, as `--script` would give it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the flags, and hand on what is a person's own as one text."""
        return super().parse_args(ctx, with_script(args, _with_values(self.params)))


def with_script(arguments: Sequence[str], with_values: frozenset[str]) -> list[str]:
    """Return the arguments with a person's own command as the value of `--script`.

    It begins behind `--`, or with a Python file that is not the value of a flag (`with_values`). Raises UsageError
    where a flag that can only be worldsize's stands behind it.
    """
    place = place_of_own(arguments, with_values)
    if place is None:
        return list(arguments)
    own = arguments[place + 1 :] if arguments[place] == END else arguments[place:]
    if misplaced := [word for word in own if word.partition("=")[0] in OURS]:
        raise UsageError(
            f"{misplaced[0]} stands behind {own[0]}, where flags are those of the command itself\n"
            f"Put it before {own[0]}; if it is the command's own: --script {shlex.quote(shlex.join(own))}"
        )
    return [*arguments[:place], "--script", shlex.join(own)]


def place_of_own(arguments: Sequence[str], with_values: frozenset[str]) -> int | None:
    """Return where a person's own command begins, or the `--` before it; None where there is none."""
    skips = False
    for place, word in enumerate(arguments):
        if skips:
            skips = False
        elif word == END or (word.endswith(".py") and not word.startswith("-")):
            return place
        else:
            skips = word in with_values
    return None


def _with_values(parameters: Sequence[Any]) -> frozenset[str]:
    named = (each for each in parameters if each.param_type_name == "option" and not each.is_flag)
    return frozenset(word for each in named for word in each.opts)
