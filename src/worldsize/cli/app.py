"""`worldsize`: the commands, and the one place where errors become a line and an exit status.

Nothing heavy is imported here: `worldsize --help` must answer at once. Each command imports what it needs.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from worldsize import __version__
from worldsize.cli.attach import attach
from worldsize.cli.audit import audit
from worldsize.cli.comm import comm
from worldsize.cli.compare import compare
from worldsize.cli.doctor import doctor
from worldsize.cli.flags import by_flag
from worldsize.cli.help import PanelCommand
from worldsize.cli.meter import meter
from worldsize.cli.own_command import TakesCommand, place_of_own
from worldsize.cli.predict import predict
from worldsize.cli.rehearse import rehearse
from worldsize.cli.report import report
from worldsize.cli.scale import scale
from worldsize.cli.streams import make_patient
from worldsize.cli.study import study
from worldsize.cli.sweep import sweep
from worldsize.cli.train import train
from worldsize.cli.verify import verify
from worldsize.errors import WorldsizeError

app = typer.Typer(
    name="worldsize",
    help="Measure how data-parallel training scales, where each step goes, and what to change.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
COMMANDS = (
    *(train, study, meter, sweep, comm, verify, predict, rehearse, attach, report, scale, compare, audit, doctor),
)
for _command in COMMANDS:
    app.command(cls=TakesCommand if _command is study else PanelCommand)(_command)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"worldsize {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error; allowed anywhere.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_tell_version, is_eager=True)
    ] = False,
) -> None:
    """Flags of all commands; `--debug` is read in `main`, before any command runs."""


STAGES = {"train": 2, "study": 2, "sweep": 2, "verify": 2, "rehearse": 2, "comm": 1}
"""Commands that start workers here, and how much their warm server loads (launch/server.py)."""
NOT_HERE = ("--help", "--master-ip", "--launcher", "--print-script", "--print-toml")
"""Flags of a command that starts no workers of its own, or not on this machine."""


@contextmanager
def begun_early(arguments: Sequence[str]) -> Iterator[None]:
    """Load torch in a process beside this one while flags are read and the plan is made (launch/warm.py)."""
    stages = STAGES.get(next(iter(arguments), ""))
    elsewhere = any(argument.partition("=")[0] in NOT_HERE for argument in arguments)
    if stages is None or elsewhere or "TORCHELASTIC_RUN_ID" in os.environ:
        yield
        return
    from worldsize.launch.warm import WARM

    with WARM.held():
        WARM.get(stages=stages)
        yield


def main() -> None:
    """Run the command line; exit status 2 for the user's mistake, 1 for a run that failed."""
    make_patient()
    arguments = sys.argv[1:]
    place = place_of_own(arguments, frozenset(("--script", "--out")))
    ours, own = arguments[:place], arguments[len(arguments[:place]) :]
    debug = "--debug" in ours
    try:
        with begun_early(ours):
            app(args=[*(argument for argument in ours if argument != "--debug"), *own], prog_name="worldsize")
    except WorldsizeError as error:
        if debug:
            raise
        from worldsize.config.redact import without_credentials  # logs are kept, too

        text = by_flag(error, without_credentials(str(error)), next(iter(arguments), ""), arguments)
        print(f"worldsize: {text}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
