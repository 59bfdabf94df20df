"""Submit a study to Slurm, follow it, and end as a study that ran here would."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from worldsize.cli.console import messages, printable
from worldsize.cli.follow import Follower
from worldsize.cli.results import report_and_print
from worldsize.cli.run import exit_for_failures
from worldsize.errors import Interrupted, RunError, UsageError
from worldsize.launch.slurm.files import ending, folder, submitted
from worldsize.launch.slurm.state import JobState
from worldsize.results.folder import load_run

if TYPE_CHECKING:
    from worldsize.config import LaunchSettings
    from worldsize.results.launch_records import JobEnd

NOT_IN_THE_JOB = ("--json", "--print-script", "--resume")
"""Flags that are for this process; a job goes on by itself where something is there."""


def submit_and_follow(launch: "LaunchSettings", out: Path, largest_world: int, *, resume: bool, as_json: bool) -> None:
    """Submit this very command, or print its script; follow it to its end. Raises UsageError for what is refused."""
    from worldsize.launch.slurm.submit import Request, check_free, script, submit
    from worldsize.study.run import check_folder

    request = Request(command_in_job(sys.argv[1:], out), out, launch, largest_world)
    if launch.print_script:
        print(script(request), end="")
        return
    check_folder(out, resume=resume)
    check_free(out)
    job = submit(request)
    told = f"submitted job {job.job_id}: {job.nodes} node(s), {job.time_min} min; run folder {out}"
    messages(quiet=as_json).print(told, soft_wrap=True)
    follow_and_show(out, job.job_id, as_json=as_json)


def command_in_job(arguments: list[str], out: Path) -> tuple[str, ...]:
    """What was typed, as the job runs it: in the same folder, with the same flags."""
    kept = [argument for argument in arguments if argument not in NOT_IN_THE_JOB]
    named = any(argument == "--out" or argument.startswith("--out=") for argument in kept)
    return (sys.executable, "-m", "worldsize", *kept, *(() if named else ("--out", str(out))))


def follow_and_show(out: Path, job_id: str, *, as_json: bool) -> None:
    """Follow a job to its end, write the report, print the results; the exit status is that of a study run here.

    Raises Interrupted when the user has seen enough: the job goes on.
    """
    follower = Follower(out, job_id, messages(quiet=as_json))
    try:
        state = follower.follow()
    except KeyboardInterrupt:
        raise Interrupted(
            f"detached; job {job_id} goes on\n"
            f"Follow it again with: worldsize attach {out}    Cancel it with: scancel {job_id}"
        ) from None
    end = readable(ending(out, job_id))
    if not (out / "study.json").exists():
        raise _nothing_there(out, job_id, state, end)
    report_and_print(out, as_json=as_json)
    broken = _broken_off(out, job_id, state, end)
    if broken:
        raise broken
    exit_for_failures(load_run(out))


def readable(end: "JobEnd | None") -> "JobEnd | None":
    """The same, without what steers a terminal: a run folder may come from others."""
    told = [] if end is None else [printable(line) for line in end.message.splitlines()]
    return None if end is None else end.model_copy(update={"message": "\n".join(told)})


def _nothing_there(out: Path, job_id: str, state: JobState, end: "JobEnd | None") -> Exception:
    """Why a job measured nothing: the study's own words, if it had any."""
    if end is not None and end.message:
        return (UsageError if end.exit_status == UsageError.exit_status else RunError)(end.message)
    return RunError(f"job {job_id} {state} before anything was measured\nIts logs are in {folder(out)}.")


def _broken_off(out: Path, job_id: str, state: JobState, end: "JobEnd | None") -> Exception | None:
    """The error of a job that did not come to the end of its study; what was measured is kept."""
    if end is not None and end.exit_status in (0, 1) and not end.message:
        return None
    how = str(state) if state.name not in ("COMPLETED", "FAILED") or end is None else "was stopped"
    said = f" ({end.message.partition(chr(10))[0]})" if end is not None and end.message else ""
    launch = " ".join(("--launcher slurm", f"--time {submitted(out)[-1].time_min}"))
    return RunError(
        f"job {job_id} {how}{said}; what was measured is in {out}, the job's logs in {folder(out)}\n"
        f"Go on with --resume {launch} --out {out}."
    )
