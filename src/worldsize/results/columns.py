"""The samples of a cell that is complete, as Parquet: what is read in place of its lines, which stay.

cells/<cell>/
    steps.parquet    all steps of all ranks, in the order of rank, then of time
    spans.parquet    their collectives
    columns.json     the index: the sizes of the files of lines that are in them, and their digests; written last

The lines are the truth. Parquet counts only while they are as they were when it was made, which is to say that each
file of lines has the size that the index says and is not younger than the index: a cell that goes on, lines that were
changed, a crash before the index was written, all lead back to them. What is in them is not compared. Files of lines
that are not there any more, as in a folder that was copied without them, or that were cut short, are no reason to
distrust it.
"""

import hashlib
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import polars as pl
from pydantic import Field

from worldsize.errors import OutputError
from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.rank_files import state
from worldsize.results.records import SCHEMA_VERSION
from worldsize.results.samples import KINDS, Kind, read_lines
from worldsize.results.step_records import ENDS

INDEX = "columns.json"
SCRATCH = ".columns."
"""Before the number of the process that writes there."""
OLD_S = 86_400.0
"""No process gathers lines for longer; its number may be that of another one by then."""
ROW_GROUP = 2**15
LATER = ("reference_s", *ENDS, "last_gradient_s", "phases", "phase_ends_s", "blocking", "ready_s", "awaited_s")
"""Columns that earlier versions did not write."""
BROKEN = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
"""What polars raises for a file that is not what it seems; it panics at some."""


class Digest(Record):
    """What a Parquet file is known by."""

    size_bytes: int
    sha256: str


class ColumnsRecord(Record):
    """columns.json: what the Parquet files hold."""

    schema_version: int = SCHEMA_VERSION
    lines: dict[str, int] = Field(default_factory=dict)
    """Name of each file of lines → its size in bytes."""
    files: dict[str, Digest]
    """steps and spans."""


def parquet_file(folder: Path, kind: Kind) -> Path:
    """Where the columns of a cell lie."""
    return folder / f"{kind.name}.parquet"


def pack(folder: Path) -> None:
    """Gather the lines of a cell's ranks into Parquet, unless that was done before; the lines stay.

    A crash leaves the lines alone or all three files. Raises OutputError where it cannot be written, or a line is no
    record.
    """
    try:
        if usable(folder):
            return
    except OutputError:
        pass  # what cannot be read is made again
    _clean(folder)
    scratch = folder / f"{SCRATCH}{os.getpid()}"
    try:
        scratch.mkdir()
        # Before they are read: of lines that are added meanwhile, the index must not say that they are in.
        sizes = _line_sizes(folder)
        if not sizes:
            return
        files = {kind.name: _write(kind, folder, scratch) for kind in KINDS}
        (folder / INDEX).unlink(missing_ok=True)  # it does not speak of the files that take their places now
        for kind in KINDS:
            parquet_file(scratch, kind).replace(parquet_file(folder, kind))
        write_whole(folder / INDEX, ColumnsRecord(lines=sizes, files=files).model_dump_json(indent=2) + "\n")
    except BROKEN as error:
        raise OutputError(f"cannot write the columns of {folder}: {reason_text(error)}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _clean(folder: Path) -> None:
    """Remove what a crash has left, but nothing that another process may be writing."""
    for left in folder.glob(f"{SCRATCH}*"):
        with suppress(OSError):  # its owner may be removing it just now
            if not _alive(left.name.removeprefix(SCRATCH)) or time.time() - left.stat().st_mtime > OLD_S:
                shutil.rmtree(left, ignore_errors=True)


def _alive(process: str) -> bool:
    """Whether another process has this number; a folder of our own number was left by one that had it before."""
    if not process.isdecimal() or int(process) == os.getpid():
        return False
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _write(kind: Kind, folder: Path, scratch: Path) -> Digest:
    target = parquet_file(scratch, kind)
    write_parts(kind, folder, scratch).sink_parquet(target, row_group_size=ROW_GROUP)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return _digest(target)


def write_parts(kind: Kind, folder: Path, scratch: Path) -> pl.LazyFrame:
    """The lines of a cell as columns on disk, some ranks per file: memory holds only those of a few ranks."""
    parts = []
    for number, chunk in enumerate(read_lines(kind, kind.files(folder))):
        parts.append(scratch / f"{kind.name}-{number}.parquet")
        chunk.write_parquet(parts[-1])
    return _scanned(parts)


def _scanned(paths: list[Path]) -> pl.LazyFrame:
    # A folder may be named `a=1`, or `[b]`: neither says anything of what is in it.
    return pl.scan_parquet(paths, glob=False, hive_partitioning=False)


def usable(folder: Path) -> dict[str, pl.LazyFrame]:
    """The columns of a cell by kind; empty where there are none, or lines have changed since, by size or time.

    Lines are only ever added: of a file that is shorter than it was, some are lost, and the columns have them.

    Raises OutputError where they are damaged.
    """
    index = own(folder, INDEX)
    if not index.exists():
        return {}
    record, made_ns = read_record(ColumnsRecord, index), index.stat().st_mtime_ns
    for kind in KINDS:
        for path in kind.files(folder).values():
            lines = state(path)
            wanted = record.lines.get(path.name, -1)
            if lines.st_size >= wanted and (lines.st_size > wanted or lines.st_mtime_ns > made_ns):
                return {}
    return {kind.name: _opened(folder, kind, record) for kind in KINDS}


def lost_lines(folder: Path) -> list[str]:
    """Files of lines that columns were made of and that are gone or shorter, where others are still there."""
    wanted = read_record(ColumnsRecord, own(folder, INDEX)).lines
    there = _line_sizes(folder)
    return sorted(name for name, size in wanted.items() if there.get(name, -1) < size) if there else []


def _line_sizes(folder: Path) -> dict[str, int]:
    return {path.name: state(path).st_size for kind in KINDS for path in kind.files(folder).values()}


def has_all_lines(folder: Path) -> bool:
    """Whether a cell still has all lines that its columns were made of, or has no columns."""
    index = own(folder, INDEX)
    if not index.exists():
        return True
    there = _line_sizes(folder)
    return all(there.get(name, -1) >= size for name, size in read_record(ColumnsRecord, index).lines.items())


def columns_bytes(folder: Path) -> int:
    """Size of the columns of a cell, which are there."""
    return sum(parquet_file(folder, kind).stat().st_size for kind in KINDS)


def _opened(folder: Path, kind: Kind, record: ColumnsRecord) -> pl.LazyFrame:
    path = own(folder, parquet_file(folder, kind).name)
    try:
        if _digest(path) != record.files.get(kind.name):
            raise OutputError(f"{path} is not what {INDEX} says")
        columns = _with_later(_scanned([path]), kind)
        if columns.collect_schema() != pl.Schema(kind.schema):
            raise OutputError(f"{path} has other columns than the {kind.name} of a cell")
    except BROKEN as error:
        raise OutputError(f"cannot read {path}: {reason_text(error)}") from None
    return columns


def _with_later(columns: pl.LazyFrame, kind: Kind) -> pl.LazyFrame:
    """The columns with nulls for those that a version did not write yet; lines of that time lack them as well."""
    there = columns.collect_schema().names()
    lacking = [name for name in LATER if name in kind.schema and name not in there]
    added = columns.with_columns(pl.lit(None, dtype=kind.schema[name]).alias(name) for name in lacking)
    return added.select(*kind.schema) if lacking and {*there, *lacking} == {*kind.schema} else columns


def _digest(path: Path) -> Digest:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return Digest(size_bytes=file.tell(), sha256=digest.hexdigest())


def reason_text(error: BaseException) -> str:
    """What went wrong, in one line; BROKEN says of what."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().partition("\n")[0] or type(error).__name__
