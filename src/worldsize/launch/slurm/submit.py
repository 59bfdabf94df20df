"""Submit a study as one job, through submitit, or write down the script that would; with its time limit."""

import io
import math
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worldsize.config import LaunchSettings
from worldsize.config.redact import safe_command
from worldsize.errors import OutputError, UsageError
from worldsize.launch.slurm.files import SubmittedJob, add_submission, folder, submitted
from worldsize.launch.slurm.state import state_of

try:
    from submitit import SlurmExecutor
except ImportError:
    raise UsageError("--launcher slurm needs submitit; install it with: pip install 'worldsize[slurm]'") from None

from worldsize.launch.slurm.batch import Batch

SIGNAL_BEFORE_S = 120
"""How long before its time limit a job is told to end in order; a short one shortly before."""
_TIME = re.compile(r"(?:(?P<days>\d+)-)?(?P<parts>\d+(?::\d+){0,2})")
MAX_TIMEOUTS = 10
"""How often a job that reached its time limit is queued again; a study that gets nowhere must end."""
_STUDY_IN_A_SCRIPT = """\
{command} $([ -e {study} ] && echo --resume) &
pid=$!
# Ahead of the time limit Slurm sends USR2 to this shell: the study stops in order, and the job is queued again.
trap 'limit=1; kill -TERM $pid 2>/dev/null' USR2
trap 'kill -TERM $pid 2>/dev/null' TERM
wait $pid; status=$?
while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done # a signal ends a wait early
if [ -n "$limit" ] && [ "$status" -ne 0 ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {max} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit $status"""


def minutes(text: str) -> int:
    """`90`, `90:00`, `1:30:00`, `1-0`, `1-6:30` or `1-6:30:00` in whole minutes. Raises UsageError for others."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"--time: {text!r} was given; minutes, minutes:seconds or [days-]hours:minutes:seconds is allowed"
        )
    parts = [int(part) for part in found["parts"].split(":")]
    if found["days"] is not None:
        hours, mins, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:
        hours, mins, seconds = parts
    else:
        hours, mins, seconds = 0, *[*parts, 0][:2]
    whole = int(found["days"] or 0) * 24 * 60 + hours * 60 + mins + math.ceil(seconds / 60)
    if whole < 1:
        raise UsageError(f"--time: {text!r} was given; a job needs at least a minute")
    return whole


def signal_delay_s(limit_min: int) -> int:
    """Seconds before the limit at which the job is told; Slurm may do so up to a minute sooner."""
    return min(SIGNAL_BEFORE_S, limit_min * 60 // 4)


class _Writer(SlurmExecutor):
    """Writes the script also where there is no Slurm."""

    @classmethod
    def affinity(cls) -> int:
        return 1

    def script(self, command: str) -> str:
        """The text of a batch script that runs a command."""
        return str(self._make_submission_file_text(command, ""))


@dataclass(frozen=True)
class Request:
    """What a job is asked to do, and what it needs."""

    command: tuple[str, ...]
    """The study as a command, without --resume."""
    run: Path
    launch: LaunchSettings
    largest_world: int | None
    """None where no world sizes were given: then it follows from the nodes."""

    @property
    def nodes(self) -> int:
        """Those asked for, or enough for all workers, or one."""
        return self.launch.nodes or -(-(self.largest_world or 1) // (self.launch.workers_per_node or 1))

    @property
    def time_min(self) -> int:
        """Raises UsageError where no time was given: a default that ends a study in the middle helps nobody."""
        if self.launch.time is None:
            raise UsageError("--launcher slurm needs --time: how long the job may take, such as --time 2:00:00")
        return minutes(self.launch.time)

    def parameters(self, *, signal: str, **others: Any) -> dict[str, Any]:
        """For sbatch: whole nodes, since no other job may run where something is measured."""
        parameters: dict[str, Any] = {
            "job_name": "worldsize",
            "nodes": self.nodes,
            "ntasks_per_node": 1,
            "time": self.time_min,
            "partition": self.launch.partition,
            "exclusive": True,
            "mem": "0",
            "wckey": None,
            "use_srun": False,
        }
        before = f"{signal}@{signal_delay_s(self.time_min)}"  # to the script alone, not to the workers
        parameters["additional_parameters"] = {"signal": f"B:{before}", "requeue": True, **others}
        return {name: value for name, value in parameters.items() if value is not None or name == "wckey"}


def script(request: Request) -> str:
    """A batch script that runs the study as a submitted job does: stopped in order, queued again, gone on with."""
    writer = _Writer(folder=folder(request.run))
    log = {"output": "worldsize-%j.log", "error": "worldsize-%j.log", "open-mode": "append"}
    writer.update_parameters(**request.parameters(signal="USR2", **log))
    command, study = shlex.join(request.command), shlex.quote(str(request.run / "study.json"))
    text = writer.script(_STUDY_IN_A_SCRIPT.format(command=command, study=study, max=MAX_TIMEOUTS))
    return text.replace("export SUBMITIT_EXECUTOR=slurm\n", "")


def submit(request: Request) -> SubmittedJob:
    """Submit the study; returns the job. Raises UsageError for what Slurm refuses."""
    run = request.run.absolute()
    if "%" in str(run):
        raise UsageError(f"--out {run}: Slurm replaces % in the names of files; give a folder without it")
    parameters = request.parameters(signal="USR2")
    for command in ("sbatch", "srun", "squeue"):
        if shutil.which(command) is None:
            raise UsageError(
                f"--launcher slurm: there is no command {command} here\n"
                "Run it on a login node of the cluster, or see the job with --print-script."
            )
    # The script's process is the study's: Slurm's signal ahead of the time limit reaches that one alone.
    executor = SlurmExecutor(folder(run), max_num_timeout=MAX_TIMEOUTS, python=f"exec {shlex.quote(sys.executable)}")
    executor.update_parameters(**parameters)
    with _nothing_left(run), redirect_stderr(io.StringIO()):  # submitit passes on what sbatch says; it is said once
        job_id = str(executor.submit(Batch(request.command, run)).job_id)
    record = SubmittedJob(
        job_id=job_id,
        submitted=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        command=safe_command(request.command),
        nodes=request.nodes,
        time_min=request.time_min,
        partition=request.launch.partition,
    )
    add_submission(run, record)
    return record


def check_free(run: Path) -> None:
    """Raise UsageError if a job that was submitted for this folder has not ended."""
    for job in submitted(run)[-1:]:
        state = state_of(job.job_id)
        if not state.ended:
            raise UsageError(
                f"job {job.job_id} was submitted for {run} and has not ended: {state}\n"
                f"Follow it with: worldsize attach {run}"
            )


@contextmanager
def _nothing_left(run: Path) -> Iterator[None]:
    """Remove what submitit has written where Slurm refuses the job; raises UsageError with Slurm's reason."""
    place = folder(run)
    before = set(place.iterdir()) if place.exists() else set()
    created = not run.exists()
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {place}: {error.strerror}") from None
    except Exception as error:
        for path in set(place.iterdir()) - before:
            path.unlink()
        if not before:
            place.rmdir()
        if created:
            run.rmdir()
        raise UsageError(f"Slurm did not take the job: {_refusal(error)}") from None


def _refusal(error: Exception) -> str:
    """What sbatch said last: its first lines repeat it."""
    lines = [line for line in str(error).splitlines() if "error:" in line] or str(error).splitlines()
    return "; ".join(lines[-1:]).rpartition("error:")[2].strip().removeprefix("Batch job submission failed: ")
