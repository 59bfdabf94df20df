"""Why a command of a person has no numbers: the error that it ended with, or what it does in place of a step."""

from pathlib import Path

from worldsize.commands.failure import explain_end
from worldsize.commands.running import RunningCommand
from worldsize.config import CommandSettings
from worldsize.launch.hang import main_thread
from worldsize.results.records import ErrorRecord
from worldsize.study.executor import CellFailed

NO_STEP = "NoStep"
"""Kind of the error of a command that has made no step in its time."""
NO_OPTIMIZER = (
    "Its optimizer must be one of torch.optim or derived from it, and step in a process that the command starts, with "
    "a Python that reads PYTHONPATH."
)


def failure_of(running: RunningCommand, program: CommandSettings) -> CellFailed:
    """Return why a command that has ended is no cell with numbers."""
    status = running.status or 0
    running.end()
    if status == 0:
        message = f"{program.shown} ended without a step of an optimizer, so there is nothing to time\n{NO_OPTIMIZER}"
        return CellFailed(ErrorRecord(kind="UsageError", message=message, exit_status=2))
    launch = next((tree.launch for tree in running.trees if tree.status), running.launches[0])
    said, errors = _text(launch.stdout), _text(launch.stderr)
    ending = explain_end(status=status, stderr=errors, stdout=said, folder=Path.cwd(), words=program.words)
    message = f"{program.shown}: {ending.text}"
    return CellFailed(
        ErrorRecord(kind="CommandError", message=message, rank=ending.rank, traceback="\n".join(ending.lines))
    )


def no_step_of(running: RunningCommand, program: CommandSettings, limit_s: float) -> CellFailed:
    """Return what a command does that has made no step in its time."""
    where, stacks = _where(running)
    message = f"{program.shown} has made no step of an optimizer within {limit_s:.0f} s{where}\n{NO_OPTIMIZER}"
    message += " If it only begins slowly, give a longer --budget."
    return CellFailed(ErrorRecord(kind=NO_STEP, message=message, exit_status=2, traceback=stacks))


def hang_of(running: RunningCommand, program: CommandSettings, limit_s: float) -> CellFailed:
    """Return what a command does that makes no more steps."""
    where, stacks = _where(running)
    message = f"{program.shown} has ended no step for {limit_s:.0f} s{where}\nIf it is only slow, raise --hang-timeout."
    return CellFailed(ErrorRecord(kind="Hang", message=message, traceback=stacks))


def _where(running: RunningCommand) -> tuple[str, str]:
    """Where each process of a command is, in words, and their stacks."""
    stacks = {pid: stack for pid, stack in running.stacks().items() if stack}
    ranks = {each.pid: f"rank {rank}" for rank, each in running.ranks.items()}
    places = [f"{ranks.get(pid, f'process {pid}')} is in {_own_line(stack)}" for pid, stack in stacks.items()]
    text = "\n".join(f"{ranks.get(pid, f'process {pid}')}:\n{stack}" for pid, stack in stacks.items())
    return (f"; {'; '.join(places)}" if places else ""), text


def _own_line(stack: str) -> str:
    """The innermost line of a person's own file in a stack; the innermost of all where there is none."""
    frames = main_thread(stack)
    here = str(Path.cwd())
    own = [frame for frame in frames if frame[0].startswith(here) and "site-packages" not in frame[0]]
    file, line, name = (own or frames or [("an unknown place", "0", "?")])[0]
    return f"{Path(file).name}:{line}, in {name}"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
