"""Where the files of submitted jobs are in a run folder.

All raise OutputError for a link in their place that leads out of it.
"""

from pathlib import Path

from worldsize.errors import OutputError
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.launch_records import SUBMISSIONS, JobEnd, Submissions, SubmittedJob


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
