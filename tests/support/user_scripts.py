"""Training scripts of the kinds that people have, studied as they are; none of them knows worldsize."""

import hashlib
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np

from in_process import worldsize
from worldsize.results.folder import Cell, Run, load_run

SCRIPTS = Path(__file__).parent / "scripts"
BRIEF = ("--steps", 16, "--block-steps", 4, "--threads-per-worker", 1)


def brought(folder: Path, name: str) -> None:
    """Put a script into a folder, with the data that it reads."""
    shutil.copy(SCRIPTS / name, folder / name)
    (folder / "data").mkdir()
    for split in ("train", "val"):
        np.arange(4096, dtype=np.uint16).__mod__(64).tofile(folder / "data" / f"{split}.bin")


def content(folder: Path, *but: str) -> dict[str, str]:
    """All files of a folder and their digests, but for those below some of its entries."""
    files = (each for each in folder.rglob("*") if each.is_file() and each.relative_to(folder).parts[0] not in but)
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def studied(folder: Path, script: str, *more: object, sizes: str = "1,2") -> "CompletedProcess[str]":
    """Study a script of a folder, from this folder."""
    return worldsize("study", "--script", script, "--world-sizes", sizes, "--out", "run", *BRIEF, *more, cwd=folder)


def run_of(folder: Path, done: "CompletedProcess[str]") -> Run:
    """The run of a study that ended well."""
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run")


def codes(cell: Cell) -> set[str]:
    """Those of its warnings."""
    return {warning.code for warning in cell.record.warnings}
