"""Training scripts of the kinds that people have, studied as they are; none of them knows worldsize."""

import hashlib
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess

import numpy as np
import pytest

from in_process import worldsize
from no_links import leave_links_out
from worldsize.results.folder import Cell, Run, load_run

SCRIPTS = Path(__file__).parent / "scripts"
BRIEF = ("--steps", 16, "--block-steps", 4)
HEAD = """
import os, sys, time
import torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(rest_s=0.002):
    loss = model(torch.ones(6, 4)).sum()
    loss.backward()
    time.sleep(rest_s)
    optimizer.step()
    optimizer.zero_grad()
"""
"""Of the small ones: a model, and a step of it that takes as long as it is told."""


def put(folder: Path, code: str, name: str = "train.py") -> None:
    """Put a small script into a folder."""
    (folder / name).write_text(HEAD + code)


def brought(folder: Path, *names: str) -> None:
    """Put scripts into a folder, with the data that they read."""
    for name in names:
        shutil.copy(SCRIPTS / name, folder / name)
    (folder / "data").mkdir()
    for split in ("train", "val"):
        np.arange(4096, dtype=np.uint16).__mod__(64).tofile(folder / "data" / f"{split}.bin")


def content(folder: Path, *but: str) -> dict[str, str]:
    """All files of a folder and their digests, but for those below some of its entries."""
    files = (each for each in folder.rglob("*") if each.is_file() and each.relative_to(folder).parts[0] not in but)
    return {str(each.relative_to(folder)): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def typed(script: str, *, torchrun: bool = False) -> str:
    """A command that is run as it is typed: one cell at each world size, where a script alone has one more.

    It is told how many workers there are, by torchrun or as the last argument of the script.
    """
    return f"torchrun --standalone --nproc-per-node {{n}} {script}" if torchrun else f"{sys.executable} {script} {{n}}"


def studied(folder: Path, scripts: str | Sequence[str], *more: object, sizes: str = "1,2") -> "CompletedProcess[str]":
    """Study scripts of a folder, from this folder, in turns; their links are not measured."""
    given = [word for script in ([scripts] if isinstance(scripts, str) else scripts) for word in ("--script", script)]
    with pytest.MonkeyPatch.context() as patch:
        leave_links_out(patch)
        return worldsize("study", *given, "--world-sizes", sizes, "--out", "run", *BRIEF, *more, cwd=folder)


def run_of(folder: Path, done: "CompletedProcess[str]") -> Run:
    """The run of a study that ended well."""
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run")


def codes(cell: Cell) -> set[str]:
    """Those of its warnings."""
    return {warning.code for warning in cell.record.warnings}
