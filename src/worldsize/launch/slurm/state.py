"""What Slurm says of a job, asked through its own commands."""

import subprocess
from dataclasses import dataclass

from worldsize.errors import UsageError

PATIENCE_S = 60.0
"""Slurm's commands wait for a controller that is away, longer than a person would."""
ENDS = {
    "COMPLETED": "has ended",
    "FAILED": "failed",
    "CANCELLED": "was cancelled",
    "TIMEOUT": "reached its time limit",
    "NODE_FAIL": "lost a node that failed",
    "BOOT_FAIL": "did not start: a node did not boot",
    "OUT_OF_MEMORY": "ran out of memory",
    "DEADLINE": "reached its deadline",
    "PREEMPTED": "had to make room for another job",
    "GONE": "is no longer known to Slurm",
}
"""States that last, in words; the last one is ours."""
UNKNOWN_JOB = "Invalid job id"
"""What squeue says of a job that ended some minutes ago, or never was."""


def run(*command: str) -> str:
    """What a command prints. Raises UsageError where there is none, CalledProcessError with its stderr if it fails."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
    except FileNotFoundError:
        raise UsageError(f"there is no command {command[0]} here: this machine belongs to no Slurm cluster") from None
    except subprocess.TimeoutExpired as error:
        raise subprocess.CalledProcessError(1, command, "", f"no answer within {error.timeout:.0f} s") from None
    return done.stdout


@dataclass(frozen=True)
class JobState:
    """The state of a job at a moment."""

    name: str
    """PENDING, RUNNING … or UNREACHABLE where Slurm does not answer."""
    reason: str = ""
    nodes: str = ""

    @property
    def ended(self) -> bool:
        """Whether it will not run again."""
        return self.name in ENDS

    def __str__(self) -> str:
        if self.ended:
            return ENDS[self.name]
        detail = self.nodes and f"on {self.nodes}" if self.name == "RUNNING" else self.reason and f"({self.reason})"
        return f"{self.name.lower()} {detail}".strip()


def state_of(job_id: str) -> JobState:
    """The state of a job: from the queue, or from the accounts if it has left it and there are any."""
    try:
        printed = run("squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T|%r|%N").strip()
    except subprocess.CalledProcessError as error:
        if UNKNOWN_JOB not in error.stderr:
            return JobState("UNREACHABLE", error.stderr.strip().partition("\n")[0])
        printed = ""
    if not printed:
        return _accounted(job_id)
    name, reason, nodes = printed.splitlines()[0].split("|", 2)
    return JobState(name, "" if reason == "None" else reason, nodes)


def _accounted(job_id: str) -> JobState:
    """Slurm forgets a job some minutes after its end, but for clusters that keep accounts."""
    try:
        printed = run("sacct", "--noheader", "--allocations", "--parsable2", f"--jobs={job_id}", "--format=State")
    except subprocess.CalledProcessError:
        printed = ""
    words = printed.split()  # `CANCELLED by 0` is one of them
    return JobState(words[0]) if words else JobState("GONE")
