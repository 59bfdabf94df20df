"""What a run folder says of the jobs that were submitted for it, and where their files are.

No result depends on them. All raise OutputError for a link in their place that leads out of it.
"""

from pathlib import Path

from pydantic import Field

from worldsize.errors import OutputError
from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole

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


def folder(run: Path) -> Path:
    """Of the submitted jobs, all of their files."""
    return own(run, SUBMISSIONS)


def submissions_file(run: Path) -> Path:
    """Says which jobs were submitted."""
    return own(run, SUBMISSIONS, "submissions.json")


def end_file(run: Path, job_id: str) -> Path:
    """Says how a job ended."""
    return own(run, SUBMISSIONS, f"{job_id}_end.json")


def log_file(run: Path, job_id: str) -> Path:
    """What the study in a job told while it ran."""
    return own(run, SUBMISSIONS, f"{job_id}_study.log")


def submitted(run: Path) -> list[SubmittedJob]:
    """The jobs that were submitted, the last one last; none where nothing was. Raises OutputError if it is damaged."""
    file = submissions_file(run)
    return read_record(Submissions, file).jobs if file.exists() else []


def add_submission(run: Path, job: SubmittedJob) -> None:
    """Note one more job."""
    record = Submissions(jobs=[*submitted(run), job])
    write_whole(submissions_file(run), record.model_dump_json(indent=2) + "\n")


def ending(run: Path, job_id: str) -> JobEnd | None:
    """How a job ended, if it could say so."""
    try:
        return read_record(JobEnd, end_file(run, job_id))
    except OutputError:
        return None
