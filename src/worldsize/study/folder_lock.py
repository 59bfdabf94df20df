"""One study at a time in a folder: a lock that ends with the process that holds it, and leaves no file."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EAGAIN
from pathlib import Path

import psutil

from worldsize.errors import OutputError, UsageError

_SCRATCH = re.compile(r"\..+\.(?P<process>[0-9]+)")
"""What `results.files.write_whole` calls a file that it is writing."""


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold the folder, which is made if need be, for the length of this context; nothing is left of an empty one.

    The lock is on the folder itself (flock(2)): the kernel takes it away with the process, also after a kill −9.
    File systems that cannot lock a folder go without. Raises UsageError if another process has it, OutputError if
    the folder cannot be made.
    """
    made = [place for place in (folder, *folder.absolute().parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise OutputError(f"cannot write in {folder}: {error.strerror}; give another --out") from None
    try:
        _lock(handle, folder)
        remove_scratch(folder)
        try:
            yield
        finally:
            with suppress(OSError):
                remove_scratch(folder)  # of workers that were ended while they wrote
    finally:
        os.close(handle)
        with suppress(OSError):  # one that holds something
            for place in made:
                place.rmdir()


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno != EAGAIN:
            return
        holder = _holder(os.fstat(handle).st_ino)
        who = f"process {holder}" if holder else "another process"
        raise UsageError(
            f"{folder} is in use: {who} runs a study in it\nWait for its end, or give another --out."
        ) from None


def _holder(inode: int) -> int | None:
    """The process that holds a lock on this inode, as Linux tells it."""
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="utf-8").splitlines():
            words = line.split()
            if "FLOCK" in words and len(words) > 5 and words[5].endswith(f":{inode}") and int(words[4]) > 0:
                return int(words[4])
    return None


def remove_scratch(folder: Path) -> None:
    """Remove the files that a process was writing when it was killed; those of one that lives stay."""
    for path in folder.rglob(".*"):
        found = _SCRATCH.fullmatch(path.name)
        if found and path.is_file() and not psutil.pid_exists(int(found["process"])):
            with suppress(OSError):
                path.unlink()
