"""What a run folder says of the jobs that were submitted for it; no result depends on it."""

from pydantic import Field

from worldsize.results.base import Record

SUBMISSIONS = "slurm"
"""The subfolder of a run folder that these are in, with the logs of the jobs."""


class SubmittedJob(Record):
    """One job that was submitted to Slurm."""

    job_id: str = Field(pattern=r"^\d{1,18}$")
    submitted: str
    """UTC, ISO 8601."""
    command: tuple[str, ...]
    """What it runs; with --resume, where it goes on."""
    nodes: int
    time_min: int
    """Its time limit, in minutes."""
    partition: str | None = None
    """None is the cluster's default."""


class Submissions(Record):
    """All jobs that were submitted for a run folder; the last one counts."""

    schema_version: int = 1
    jobs: list[SubmittedJob] = Field(min_length=1)


class JobEnd(Record):
    """How the study in a job ended; a job that was killed leaves none."""

    schema_version: int = 1
    job_id: str
    exit_status: int
    """Of the command that ran in it; negative for a signal."""
    message: str
    """What it said at its end; empty where that was nothing."""
