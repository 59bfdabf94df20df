"""Submit a study to Slurm, follow it, and end as a study that ran here would."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from worldsize.cli.console import messages, printable
from worldsize.cli.follow import Follower
from worldsize.cli.results import exit_for_damage, exit_for_failures, report_and_print
from worldsize.errors import Interrupted, RunError, UsageError, WorldsizeError
from worldsize.launch.slurm.files import ending, folder, log_file, submitted
from worldsize.launch.slurm.state import JobState
from worldsize.results.folder import load_run

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings
    from worldsize.launch.slurm.files import JobEnd
    from worldsize.study.resuming import Resume

MODULE = ("-m", "worldsize")
IN_THE_JOB = 1 + len(MODULE)
"""Words of a job's command that stand for `worldsize`."""
NOT_IN_THE_JOB = ("--json", "--print-script", "--resume")
"""Flags that are for this process; a job goes on by itself where something is there."""


def submit_and_follow(
    launch: "LaunchSettings", out: Path, largest_world: int | None, *, resume: "Resume", as_json: bool
) -> None:
    """Submit this very command, or print its script; follow it to its end. Raises UsageError for what is refused."""
    from worldsize.launch.slurm.submit import Request, check_free, script, submit
    from worldsize.study.run import check_folder

    request = Request(command_in_job(sys.argv[1:], out), out, launch, largest_world)
    if launch.print_script and as_json:
        raise UsageError("--print-script and --json exclude each other: give one of them")
    if launch.print_script:
        print(script(request), end="")
        return
    check_folder(out, resume=resume)
    check_free(out)
    job = submit(request)
    message = f"submitted job {job.job_id}: {job.nodes} node(s), {job.time_min} min; run folder {out}"
    messages().print(message, soft_wrap=True)
    follow_and_show(out, job.job_id, as_json=as_json)


def command_in_job(arguments: list[str], out: Path) -> tuple[str, ...]:
    """What was typed, as the job runs it: in the same folder, with the same flags."""
    kept = [argument for argument in arguments if argument not in NOT_IN_THE_JOB]
    named = any(argument == "--out" or argument.startswith("--out=") for argument in kept)
    return (sys.executable, *MODULE, *kept, *(() if named else ("--out", str(out))))


def follow_and_show(out: Path, job_id: str, *, as_json: bool) -> None:
    """Follow a job to its end, write the report, print the results; the exit status is that of a study run here.

    Raises Interrupted when the user has seen enough: the job goes on.
    """
    follower = Follower(out, job_id, messages())
    try:
        state = follower.follow()
    except KeyboardInterrupt:
        raise Interrupted(
            f"detached; job {job_id} goes on\n"
            f"Follow it again with: worldsize attach {out}    Cancel it with: scancel {job_id}"
        ) from None
    end = readable(ending(out, job_id))
    damaged = False
    if (out / "study.json").exists():
        damaged = report_and_print(out, as_json=as_json).damaged
        error = _reported_end(state, end) or _broken_off(out, job_id, state, end)
    else:
        error = _reported_end(state, end) or RunError(
            f"job {job_id} {state} before anything was measured\nIts logs are in {folder(out)}."
        )
    if error:
        raise error
    exit_for_failures(load_run(out))
    exit_for_damage(damaged=damaged)
    if end is not None and end.exit_status:
        raise RunError(f"the study in job {job_id} ended with status {end.exit_status}; see {log_file(out, job_id)}")


def readable(end: "JobEnd | None") -> "JobEnd | None":
    """The same, without what steers a terminal: a run folder may come from others."""
    lines = [] if end is None else [printable(line) for line in end.message.splitlines()]
    return None if end is None else end.model_copy(update={"message": "\n".join(lines)})


def _ended_by_itself(state: JobState, end: "JobEnd | None") -> bool:
    """Whether the study came to its own end: it was neither stopped nor killed."""
    stopped = end is None or end.exit_status < 0 or end.exit_status == Interrupted.exit_status
    return not stopped and state.name in ("COMPLETED", "FAILED", "GONE")


def _reported_end(state: JobState, end: "JobEnd | None") -> WorldsizeError | None:
    """The error that a study which came to its own end has told, if any."""
    if end is None or not end.message or not _ended_by_itself(state, end):
        return None
    return (UsageError if end.exit_status == UsageError.exit_status else RunError)(end.message)


def _broken_off(out: Path, job_id: str, state: JobState, end: "JobEnd | None") -> RunError | None:
    """The error of a study that did not come to its end; what was measured is kept."""
    if _ended_by_itself(state, end):
        return None
    how = "was stopped" if end is not None and state.name in ("COMPLETED", "FAILED", "GONE") else str(state)
    again = printable(shlex.join(("worldsize", *submitted(out)[-1].command[IN_THE_JOB:], "--resume")))
    return RunError(
        f"job {job_id} {how}; what was measured is in {out}, the job's logs in {folder(out)}\nGo on with: {again}"
    )
