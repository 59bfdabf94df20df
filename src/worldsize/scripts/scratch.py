"""The working folder of a script: a copy of the user's, made of links, so that what it writes stays apart.

A file that is opened for writing by Python, or saved by torch.save, becomes a file of its own first. Files of kinds
that libraries write by themselves are copied beforehand.
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
COPIED = (".safetensors", ".h5", ".hdf5", ".onnx", ".db", ".sqlite", ".sqlite3")
"""Kinds of files that are written from C and Rust, where nobody sees that they are opened."""
PATIENCE_S = 120.0
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def enter_scratch(target: Path, launch: int, *, first: bool) -> None:
    """Work in a copy of the present folder; `first`: this process makes it, and the others on its host wait for that.

    Raises OutputError where it cannot be made.
    """
    source, ready = Path.cwd(), target.parent / f".outputs-{launch}"
    if first:
        try:
            shutil.rmtree(target, ignore_errors=True)
            mirror(source, target)
            ready.touch()
        except OSError as error:
            raise OutputError(f"cannot make the working folder of the script in {target}: {error.strerror}") from None
    until_s = time.monotonic() + PATIENCE_S
    while not ready.exists():
        if time.monotonic() > until_s:
            raise OutputError(f"the working folder of the script, {target}, is not there")
        time.sleep(0.01)
    os.chdir(target)
    keep_apart(source, target.resolve())


def mirror(source: Path, target: Path) -> None:
    """Make a folder with a link to each file of another one; raises OSError where that cannot be.

    Hidden folders at the top, run folders, and what is installed are left out; large folders are linked as a whole.
    """
    target.mkdir(parents=True)
    waiting, made = deque([(source, target)]), 0
    while waiting:
        place, copy = waiting.popleft()
        for entry in sorted(os.scandir(place), key=lambda each: each.name):
            link, made = copy / entry.name, made + 1
            if _left_out(entry, top=place == source):
                continue
            if entry.is_dir(follow_symlinks=False) and made < MAX_ENTRIES and not _is_large(entry.path):
                link.mkdir()
                waiting.append((Path(entry.path), link))
            elif entry.name.endswith(COPIED) and entry.is_file():
                shutil.copy2(entry.path, link)
            else:
                link.symlink_to(entry.path)


def _left_out(entry: os.DirEntry[str], *, top: bool) -> bool:
    if entry.name in LEFT_OUT:
        return True
    if not entry.is_dir(follow_symlinks=False):
        return False
    hidden = top and entry.name.startswith(".")
    return hidden or any(Path(entry.path, name).exists() for name in ("study.json", "pyvenv.cfg"))


def _is_large(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return sum(1 for _ in entries) > MAX_IN_A_FOLDER


def keep_apart(source: Path, target: Path) -> None:
    """From here on, what this process opens for writing in `target` is a file of its own, and no link any more."""

    def opened(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[2], int) and args[2] & WRITES and not isinstance(args[0], int):
            with suppress(OSError, TypeError, ValueError):
                own_file(Path(os.fsdecode(args[0])), source, target, keep=not args[2] & os.O_TRUNC)

    sys.addaudithook(opened)
    save = torch.save

    @functools.wraps(save)
    def saved(value: Any, file: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(file, str | os.PathLike):
            with suppress(OSError):
                own_file(Path(file), source, target, keep=False)
        save(value, file, *args, **kwargs)

    torch.save = torch.serialization.save = saved  # type: ignore[assignment] # its signature, as any wrapper


def own_file(path: Path, source: Path, target: Path, *, keep: bool) -> None:
    """Replace a link of ours by a file: a copy of what it leads to, or nothing where that is overwritten anyway."""
    place = Path(os.path.normpath(path.absolute()))
    if not (place.is_relative_to(target) and place.is_symlink()):
        return
    original = place.readlink()
    if original != source / place.relative_to(target):
        return  # a link that the user has made
    place.unlink()
    if keep and original.is_file():
        shutil.copy2(original, place)
