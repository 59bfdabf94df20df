"""Checkpoints on disk: parts that the ranks write, and the index that makes them one.

cells/<cell>/checkpoint/
    checkpoint.json        the index: which step, and the digest of each part; written last, whole or not at all
    <name>-<step>.pt       rank 0: what all ranks have in common (of a training `model` and `optimizer`: a state_dict)
    rank<k>-<step>.pt      each rank: what only it has (of a training buffers and random state)

Parts of another step lie beside the current ones until the index names theirs, so that a kill at any moment leaves
the old checkpoint or the new one. No torch here: the process of a command checks a checkpoint before it starts workers.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from worldsize.config import CellSettings
from worldsize.errors import OutputError, UsageError
from worldsize.results.base import Record
from worldsize.results.files import own, read_record, write_whole
from worldsize.results.records import SCHEMA_VERSION

INDEX = "checkpoint.json"
CHUNK_BYTES = 2**20


class Part(Record):
    """One file of a checkpoint."""

    name: str = Field(pattern=r"^[a-z0-9-]+\.pt$")
    """In the folder of the index, and nowhere else."""
    size_bytes: int
    sha256: str


class CheckpointRecord(Record):
    """checkpoint.json: what the parts belong to."""

    schema_version: int = SCHEMA_VERSION
    settings: CellSettings | None = None
    """Of a training; None for work of another kind."""
    processes: int
    device: str
    """`cpu` or `cuda`."""
    step: int
    """Steps done in the training so far: the number of the next one."""
    epoch: int
    """Position in the data: the epoch of the next step …"""
    epoch_step: int
    """… and how many steps of that epoch are done."""
    parts: list[list[Part]]
    """The parts of each rank."""
    apart: list[int] = Field(default_factory=list)
    """Ranks whose weights are not those of rank 0, and lie in their own part."""
    bucket_bytes: int | None = None
    """What `--bucket-mb auto` found; another measurement could find other buckets, and sums in another order."""
    bucket_groups: tuple[tuple[int, ...], ...] | None = None


def checkpoint_folder(cell: Path) -> Path:
    """Where the checkpoint of a cell lies."""
    return own(cell, "checkpoint")


def find_checkpoint(folder: Path) -> CheckpointRecord | None:
    """The index, None if no checkpoint is there; raise OutputError for one that cannot be read."""
    path = own(folder, INDEX)
    try:
        return read_record(CheckpointRecord, path) if path.exists() else None
    except OutputError as error:
        raise OutputError(f"{error}\n{_way_out(folder)}") from None


def check_checkpoint(
    folder: Path, record: CheckpointRecord, settings: CellSettings, *, processes: int, device: str
) -> None:
    """Raise UsageError, in plain lines, for a checkpoint of another cell than the one that is to go on."""
    of_then = record.settings.model_dump() if record.settings else {}
    then = {**of_then, "processes": record.processes, "device": record.device}
    now = {**settings.model_dump(), "processes": processes, "device": device}
    other = [f"{name} {then.get(name)} there, {now[name]} here" for name in now if then.get(name) != now[name]]
    if other:
        raise UsageError(f"{folder / INDEX} belongs to another training: {', '.join(other)}\n{_way_out(folder)}")


def check_parts(folder: Path, parts: Iterable[Iterable[Part]]) -> None:
    """Raise OutputError for a part of some ranks that is missing or is not what the index says."""
    for part in chain.from_iterable(parts):
        read_part(folder, part)


def read_part(folder: Path, part: Part) -> bytes:
    """The content of a part; raise OutputError where it is missing or is not what the index says."""
    path = own(folder, part.name)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}\n{_way_out(folder)}") from None
    if hashlib.sha256(content).hexdigest() != part.sha256:
        size = len(content)
        reason = f"{size} bytes of {part.size_bytes}" if size != part.size_bytes else "its digest differs"
        raise unusable(path, f"it is not what {INDEX} says ({reason})")
    return content


def unusable(path: Path, why: str) -> OutputError:
    """The error for a part that cannot be gone on from."""
    return OutputError(f"cannot go on from {path}: {why}\n{_way_out(path.parent)}")


def _way_out(folder: Path) -> str:
    return f"Remove {folder} to train this cell from its start with --resume, or give another --out."


def write_part(path: Path, save: Callable[[BinaryIO], object]) -> Part:
    """Let `save` write a file, so that a crash leaves the whole file or none; raise OutputError if it cannot."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("w+b") as file:
            save(file)
            file.flush()
            os.fsync(file.fileno())
            file.seek(0)
            digest = hashlib.sha256()
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
            size = file.tell()
        scratch.replace(path)
    except (OSError, RuntimeError) as error:  # torch turns some errors of the system into one of its own
        with suppress(OSError):
            scratch.unlink()
        reason = error.strerror if isinstance(error, OSError) else str(error).partition("\n")[0]
        raise OutputError(f"cannot write {path}: {reason}\nGive a folder with room for it by --out.") from None
    return Part(name=path.name, size_bytes=size, sha256=digest.hexdigest())


def write_index(folder: Path, record: CheckpointRecord) -> None:
    """Make the parts the checkpoint: from here on this one counts, and the one before it does not."""
    _sync(folder)  # the names of the parts must be on disk before the index that names them
    write_whole(folder / INDEX, record.model_dump_json(indent=2) + "\n")
    _sync(folder)


def hand_over(source: Path, target: Path, settings: CellSettings, processes: int) -> int:
    """Make the checkpoint in `source` also that of a cell with fewer processes; the step, 0 where there is none.

    Each rank that is left keeps its own part. One that is in `target` already, and is as far, stays.
    """
    found, there = find_checkpoint(source), find_checkpoint(target)
    if found is None or (there is not None and there.step >= found.step):
        return there.step if there else 0
    target.mkdir(parents=True, exist_ok=True)
    kept = found.parts[:processes]
    for part in chain.from_iterable(kept):
        write_part(target / part.name, partial(_copy, read_part(source, part)))
    apart = [rank for rank in found.apart if rank < processes]
    update = {"settings": settings, "processes": processes, "parts": kept, "apart": apart}
    write_index(target, found.model_copy(update=update))
    return found.step


def _copy(content: bytes, file: BinaryIO) -> None:
    file.write(content)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_others(folder: Path, keep: Iterable[Part], begin: str = "") -> None:
    """Remove what is left of other checkpoints, as far as its name begins so; a folder is none of ours."""
    names = {INDEX, *(part.name for part in keep)}
    for path in folder.iterdir():
        if path.name not in names and path.name.removeprefix(".").startswith(begin) and not path.is_dir():
            path.unlink(missing_ok=True)
