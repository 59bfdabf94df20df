"""The settings of a study that is to be gone on with: those it was begun with, and on top what is given now."""

from pathlib import Path
from typing import Any

from worldsize.config import StudySettings, laid_over, validated
from worldsize.errors import UsageError
from worldsize.results.files import read_record
from worldsize.results.records import StudyRecord


def settings_to_resume(out: Path | str | None, given: dict[str, Any]) -> StudySettings:
    """Settings of the study in `out` with what is given on top.

    Raises UsageError without `out` and for settings that cannot be, OutputError where `out` holds no study.
    """
    if out is None:
        raise UsageError("--resume needs --out: the folder of the study to go on with (in Python: out=)")
    stored = read_record(StudyRecord, Path(out) / "study.json").settings
    if stored is None:
        raise UsageError(f"{out} holds a run that was only metered: run its script again to go on with it")
    return validated(StudySettings, laid_over(stored.model_dump(), given))
