"""Every error that worldsize raises on purpose, in one tree; `cli.app` catches it in one place.

The message of an error is what the user reads: one or two plain lines that say what was given, what is
allowed and what to do. `exit_status` is what the command ends with: 2 for the user's mistake, 1 for a run
that failed.
"""

from collections.abc import Iterable

DAMAGED = 4
"""Exit status where something in a run folder cannot be read, and all the rest was reported."""


class WorldsizeError(Exception):
    """Base of all errors that are raised on purpose."""

    exit_status = 1


class UsageError(WorldsizeError):
    """What the user gave cannot be run; nothing was measured."""

    exit_status = 2


class SettingsError(UsageError):
    """Settings that are not allowed; the message calls them by the names of their fields."""


class UnknownNameError(UsageError):
    """A name that is not registered; the message lists the known ones."""

    def __init__(self, what: str, given: str, known: Iterable[str], hint: str = "") -> None:
        message = f"unknown {what} {given!r}; known: {', '.join(known)}"
        super().__init__(f"{message}\n{hint}" if hint else message)


class DataError(UsageError):
    """A data set that is missing, truncated, corrupt, or smaller than a batch."""


class FactoryError(UsageError):
    """A user's factory that cannot be found, raises, or returns the wrong thing."""


class OutputError(UsageError):
    """A run folder that cannot be written or read."""


class RunError(WorldsizeError):
    """A run that was correctly asked for and failed; what was measured until then is kept."""


class LossNotFiniteError(RunError):
    """The loss became NaN or infinite."""


class WorkerError(RunError):
    """A worker ended before its work was done."""


class Interrupted(RunError):  # noqa: N818 - the person's own wish, not a fault
    """The user stopped the run (Ctrl-C or SIGTERM); what was measured until then is kept."""

    exit_status = 130
