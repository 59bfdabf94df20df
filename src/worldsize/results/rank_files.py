"""The files that the ranks of a cell append a line to for each step: where they lie, and how they are read.

They are read while they grow, and after a crash: a line counts once it is whole.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from worldsize.config import MAX_WORKERS
from worldsize.errors import OutputError
from worldsize.results.files import listed, own
from worldsize.results.step_records import StepRecord

STEP_LINES = ".jsonl"
SPAN_LINES = ".spans.jsonl"
BLOCK_BYTES = 2**26
"""Bytes of a file that are read at a time."""
TAIL_BYTES = 4096
"""Enough of a file's end to hold its last line."""


def rank_file(cell: Path, rank: int, lines: str = STEP_LINES) -> Path:
    """The file of a rank, in the folder of its cell."""
    return cell / f"rank{rank}{lines}"


def rank_files(cell: Path, lines: str = STEP_LINES) -> dict[int, Path]:
    """The files that are there, in the order of the ranks; raise OutputError for a rank that cannot be."""
    found = {path.name[len("rank") : -len(lines)]: path for path in listed(cell, f"rank*{lines}")}
    ranks = [rank for rank in found if re.fullmatch("[0-9]+", rank)]
    for rank in ranks:
        if len(rank) > len(str(MAX_WORKERS)):
            raise OutputError(f"{found[rank]} is the file of no rank: there are at most {MAX_WORKERS:,} workers")
    return {int(rank): own(cell, found[rank].name) for rank in sorted(ranks, key=int)}


def state(path: Path) -> os.stat_result:
    """Size and time of a file of lines; raise OutputError where the system tells neither."""
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None


def line_blocks(path: Path, begin: int = 0) -> Iterator[bytes]:
    """Whole lines from this byte on, many at a time; a file may be larger than what fits into memory.

    Raises OutputError for a file that cannot be read; one that is not there holds none.
    """
    rest = b""
    try:
        with path.open("rb") as file:
            file.seek(begin)
            while block := file.read(BLOCK_BYTES):
                lines, _, rest = (rest + block).rpartition(b"\n")
                if lines:
                    yield lines + b"\n"
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot read {path}: {error.strerror}")


class GrowingFile:
    """The lines of a file as they are appended: each is handed out once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = 0
        """Lines so far."""
        self._at = 0

    def new_lines(self) -> Iterator[bytes]:
        """Those since the last look; all of them where the file was begun anew."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if size < self._at:
            self._at = self.lines = 0
        for block in line_blocks(self.path, self._at):
            found = block.split(b"\n")[:-1]
            self._at, self.lines = self._at + len(block), self.lines + len(found)
            yield from found

    def skip(self) -> int:
        """Leave out all that is there; how many lines that is from the start."""
        for _ in self.new_lines():
            pass
        return self.lines


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
    return parsed_step(line) if line.endswith(b"\n") else None


def parsed_step(line: bytes) -> StepRecord | None:
    """The record in a line; None for one that a crash has damaged."""
    try:
        return StepRecord.model_validate_json(line)
    except ValidationError:
        return None
