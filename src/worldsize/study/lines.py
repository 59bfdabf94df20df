"""The first and the last line that a rank has written so far."""

import os
from pathlib import Path

from pydantic import ValidationError

from worldsize.results.records import StepRecord

TAIL_BYTES = 4096
"""Enough of a file's end to hold its last line."""


def first_step(file: Path, begin: int) -> StepRecord | None:
    """The first whole line of a rank's file from this byte on; None if there is none."""
    try:
        with file.open("rb") as stream:
            stream.seek(begin)
            return _parsed(stream.readline())
    except OSError:
        return None


def last_step(file: Path) -> StepRecord | None:
    """The last whole line of a rank's file; None if there is none."""
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - TAIL_BYTES))
            lines = stream.read().splitlines(keepends=True)
    except OSError:
        return None
    whole = [line for line in lines if line.endswith(b"\n")]
    return _parsed(whole[-1]) if whole else None


def _parsed(line: bytes) -> StepRecord | None:
    try:
        return StepRecord.model_validate_json(line) if line.endswith(b"\n") else None
    except ValidationError:
        return None
