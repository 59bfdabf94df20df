"""Files that are written whole or not at all, and records that are read back from them with suspicion."""

import errno
import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import to_json

from worldsize.errors import OutputError
from worldsize.results.base import Record
from worldsize.results.records import SCHEMA_VERSION

MAX_NAME_BYTES = 255
"""The longest file name, in bytes, that common file systems allow."""
MAX_DIGITS = 20
"""Of a whole number of 64 bits, its sign included."""
_LONG = re.compile(rb"\d{19}")
"""Digits of a number that may be larger; a shorter one needs no look of its own."""

R = TypeVar("R", bound=Record)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part.

    Raises OutputError if the folder cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch.unlink(missing_ok=True)  # of a crash, or a link that somebody else has put there
        with scratch.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):  # where the folder cannot be written, there is nothing to remove
            scratch.unlink()
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way = "Free space there and go on with --resume, or give" if full else "Give"
        raise OutputError(
            f"cannot write {path}: {error.strerror}\n{way} a folder you may write to with --out."
        ) from None


def line_of(record: Record | dict[str, Any]) -> bytes:
    """A record, or the fields of one that are known to be right, as a line of a file of lines."""
    if isinstance(record, dict):
        return to_json(record) + b"\n"
    return f"{record.model_dump_json()}\n".encode()


def append_lines(file: int, lines: Iterable[bytes]) -> None:
    """Append lines to an open file descriptor, all in one write (kept after a kill −9).

    Raises OSError where they do not fit: a full disk takes a part of a line without a word.
    """
    left = b"".join(lines)
    while left:
        left = left[os.write(file, left) :]


def cell_folder(run: Path, cell_id: str) -> Path:
    """Folder of one cell; raise OutputError for an id that would leave the run folder."""
    path = run / "cells" / cell_id
    if path.parent != run / "cells" or cell_id in ("", ".", "..") or len(os.fsencode(cell_id)) > MAX_NAME_BYTES:
        raise OutputError(f"{cell_id!r} is not the name of a cell")
    return path


def outputs_folder(cell: Path) -> Path:
    """Where it is kept what the command of a cell has written."""
    return cell / "outputs"


def own(folder: Path, *names: str) -> Path:
    """The path in a run folder to which these names lead; raise OutputError for a link that leads out of the folder.

    Links to folders are refused, too: they could form a cycle. So is what the system does not let us look at.
    """
    path = folder
    for name in names:
        path = path / name
        if _leads_out(path, folder):
            raise OutputError(
                f"{path} is a link that leads out of {folder}, or to a folder: it is not followed\n"
                "Put what it points to in its place."
            )
    return path


def _leads_out(path: Path, folder: Path) -> bool:
    try:
        if not path.is_symlink():
            return False
        return path.is_dir() or not Path(os.path.realpath(path)).is_relative_to(folder.resolve())
    except OSError as error:
        raise _unseen(path, error) from None


def is_there(path: Path) -> bool:
    """Whether there is such a file or folder; raise OutputError where the system does not tell.

    What lies in another user's folder is not what was never written.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # no name of a file has a null character
        return False
    except OSError as error:
        raise _unseen(path, error) from None
    return True


def listed(folder: Path, pattern: str) -> list[Path]:
    """What lies in a folder by names of this pattern, in their order; raise OutputError where the system does not tell.

    Nothing lies in one that is not there.
    """
    try:
        return sorted(path for path in folder.iterdir() if fnmatchcase(path.name, pattern))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise _unseen(folder, error) from None


HINTS: dict[type[OSError], str] = {
    PermissionError: "\nIts owner can give you the right to read it.",
    NotADirectoryError: "\nGive the folder of a run; a file of published numbers is for: worldsize audit FILE",
}


def _unseen(path: Path, error: OSError) -> OutputError:
    hint = next((text for kind, text in HINTS.items() if isinstance(error, kind)), "")
    return OutputError(f"cannot read {path}: {error.strerror}{hint}")


def read_record(kind: type[R], path: Path) -> R:
    """Read one JSON record; raise OutputError if it is missing, of a newer worldsize, or not of that kind."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise OutputError(f"{path} is missing: {path.parent} is not a worldsize run folder") from None
    except OSError as error:
        raise _unseen(path, error) from None
    _check_version_and_sizes(path, content)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise OutputError(f"{path} is not a valid {kind.__name__}: {reason}") from None


def _bounded(path: Path, digits: str) -> int:
    """A whole number; nothing that is counted or measured here is larger than what 64 bits hold."""
    if len(digits) > MAX_DIGITS or abs(int(digits)) >= 2**63:
        raise OutputError(f"{path} holds a number that cannot be: {digits[:MAX_DIGITS]} …")
    return int(digits)


def _check_version_and_sizes(path: Path, content: bytes) -> None:
    """Refuse a newer record, which would fail on its first unknown key, and numbers that no machine word holds."""
    try:
        bounded = partial(_bounded, path) if _LONG.search(content) else None
        version = json.loads(content, parse_int=bounded)["schema_version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return  # validation says what it is
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise OutputError(
            f"{path} has schema version {version}; this worldsize reads versions up to {SCHEMA_VERSION}\n"
            "Upgrade worldsize to read it."
        )
