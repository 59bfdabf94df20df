"""The working folder of a script: a copy of the user's, made of links, so that what it writes stays apart.

A file that is opened for writing by Python, or saved by torch, becomes a file of its own first. Small files, and those
of kinds that libraries write by themselves, are copied beforehand.
"""

import functools
import os
import shutil
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from worldsize.errors import OutputError

MAX_ENTRIES = 20_000
"""Files and folders that are linked one by one; making them takes about a second. Larger folders hold data."""
MAX_IN_A_FOLDER = 1_000
LEFT_OUT = ("__pycache__", "node_modules", "runs", "wandb", "mlruns", "site-packages")
COPIED = (".safetensors", ".h5", ".hdf5", ".onnx", ".parquet", ".arrow", ".mdb", ".db", ".sqlite", ".sqlite3")
"""Kinds of files that are written from C and Rust, where their opening is not seen."""
COPIED_BYTES = 2**28
"""Larger ones are linked all the same: copying takes 5 s a GiB, for each cell."""
SMALL_BYTES, ALL_SMALL_BYTES = 2**18, 2**26
"""Files of any kind up to this size are copied, so much of them at most: the script may start others that write."""
PATIENCE_S = 120.0
CHANGES = ("os.truncate", "os.chmod", "os.chown", "os.utime", "os.setxattr")
"""Audit events of what else is done to a file by its name (https://docs.python.org/3/library/audit_events.html)."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def enter_scratch(target: Path, start: str, *, first: bool) -> None:
    """Work in a copy of the present folder; `first`: this process makes it, and the others on its host wait for that.

    `start` tells one start of the workers from all others. Raises OutputError where the copy cannot be made.
    """
    source, ready = Path.cwd(), target.with_name(f".{target.name}-{start}")
    if first:
        try:
            shutil.rmtree(target, ignore_errors=True)
            for old in target.parent.glob(f".{target.name}-*"):
                old.unlink()
            Mirror(source, target).make()
            ready.touch()
        except OSError as error:
            message = f"cannot make the working folder of the script in {target}: {error.strerror}: {error.filename}"
            raise OutputError(message) from None
    until_s = time.monotonic() + PATIENCE_S
    while not ready.exists():
        if time.monotonic() > until_s:
            raise OutputError(f"the working folder of the script, {target}, is not there")
        time.sleep(0.01)
    os.chdir(target)
    keep_apart(source, target.resolve())


class Mirror:
    """A folder with a link to, or a copy of, each file of another one.

    Hidden folders at the top, run folders, and what is installed are left out. Large folders, and those that cannot be
    read, are linked as a whole.
    """

    def __init__(self, source: Path, target: Path) -> None:
        self.source, self.target = source, target
        self._entries = self._copied_bytes = 0
        self._seen: set[Path] = set()

    def make(self) -> None:
        """Make it; raises OSError where that cannot be."""
        self.target.mkdir(parents=True)
        waiting = deque([(self.source, self.target)])
        while waiting:
            place, copy = waiting.popleft()
            for entry in sorted(os.scandir(place), key=lambda each: each.name):
                self._entries += 1
                if _left_out(entry, top=place == self.source):
                    continue
                if entry.is_dir() and self._is_small(Path(entry.path)):
                    (copy / entry.name).mkdir()
                    waiting.append((Path(entry.path), copy / entry.name))
                elif self._is_copied(entry):
                    shutil.copy2(entry.path, copy / entry.name)
                else:
                    (copy / entry.name).symlink_to(entry.path)

    def _is_small(self, folder: Path) -> bool:
        real = folder.resolve()
        if real in self._seen or self.source.resolve().is_relative_to(real):
            return False  # links that lead in a circle
        self._seen.add(real)
        try:
            with os.scandir(folder) as entries:
                count = sum(1 for _ in entries)
        except OSError:
            return False
        return count <= MAX_IN_A_FOLDER and self._entries + count <= MAX_ENTRIES

    def _is_copied(self, entry: "os.DirEntry[str]") -> bool:
        if not (entry.is_file() and os.access(entry.path, os.R_OK)):
            return False
        size = entry.stat().st_size
        small = size <= SMALL_BYTES and self._copied_bytes + size <= ALL_SMALL_BYTES
        self._copied_bytes += size if small else 0
        return small or (entry.name.endswith(COPIED) and size <= COPIED_BYTES)


def _left_out(entry: os.DirEntry[str], *, top: bool) -> bool:
    if entry.name in LEFT_OUT:
        return True
    if not entry.is_dir(follow_symlinks=False):
        return False
    hidden = top and entry.name.startswith(".")
    return hidden or any(Path(entry.path, name).exists() for name in ("study.json", "pyvenv.cfg"))


def keep_apart(source: Path, target: Path) -> None:
    """From here on, what this process opens for writing in `target` is a file of its own, and no link any more."""

    def seen(event: str, args: tuple[Any, ...]) -> None:
        opened = event == "open" and isinstance(args[2], int) and args[2] & WRITES
        if (opened or event in CHANGES) and not isinstance(args[0], int):
            with suppress(OSError, TypeError, ValueError):
                keep = not opened or not args[2] & os.O_TRUNC
                own_file(Path(os.fsdecode(args[0])), source, target, keep=keep)

    sys.addaudithook(seen)
    saves, jit_saves = _saving(torch.save, source, target), _saving(torch.jit.save, source, target)
    torch.save, torch.serialization.save, torch.jit.save = saves, saves, jit_saves


def _saving(save: Any, source: Path, target: Path) -> Any:
    """A function that writes from C++ to its second argument, `f`."""

    @functools.wraps(save)
    def saved(*args: Any, **kwargs: Any) -> Any:
        file = args[1] if len(args) > 1 else kwargs.get("f")
        if isinstance(file, str | os.PathLike):
            with suppress(OSError):
                own_file(Path(file), source, target, keep=False)
        return save(*args, **kwargs)

    return saved


def own_file(path: Path, source: Path, target: Path, *, keep: bool) -> None:
    """Replace a link of ours by a file: a copy of what it leads to, or an empty one where all is written anew."""
    place = Path(os.path.normpath(path.absolute()))
    if not (place.is_relative_to(target) and place.is_symlink()):
        return
    original = place.readlink()
    if original != source / place.relative_to(target):
        return  # a link that the user has made
    place.unlink()
    if not keep:
        place.touch()
    elif original.is_file():
        shutil.copy2(original, place)
