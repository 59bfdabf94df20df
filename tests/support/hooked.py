"""Programs with the hook in them, as a study starts them, but without a study: what they do and leave."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import worldsize.hook
from commands import LONG_S
from worldsize.commands.marks_file import MarksFile
from worldsize.hook.marks import FOLDER_VARIABLE

SITE = Path(worldsize.hook.__file__).parent / "site"
TRAINING = """
import os, signal, sys, time
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(rest_s=0.0):
    model(torch.ones(6, 4)).sum().backward()
    time.sleep(rest_s)
    optimizer.step()
    optimizer.zero_grad()
"""
"""A model, and a step of it."""


@dataclass(frozen=True)
class Ran:
    """A program that has ended."""

    status: int
    out: str
    err: str
    folder: Path
    """Where the hook writes."""

    @property
    def files(self) -> set[str]:
        """The kinds of what the hook has left: stack, trouble, marks, json."""
        kinds = (each.name.partition(".") for each in self.folder.iterdir())
        return {rest.rpartition(".")[2] if first.startswith("rank") else first for first, _, rest in kinds}

    @property
    def trouble(self) -> str:
        """What went wrong in the hook."""
        return "".join(each.read_text() for each in self.folder.glob("trouble.*"))

    def marks(self) -> MarksFile:
        """The marks of its only rank, read to their end."""
        [path] = self.folder.glob("*.marks")
        found = MarksFile(path)
        found.read()
        return found


def ran(place: Path, code: str, *paths: Path, hooked: bool = True, **variables: str) -> Ran:
    """Run a program to its end in a folder, with these on its PYTHONPATH behind the hook."""
    folder = place / "marks"
    folder.mkdir(parents=True, exist_ok=True)
    (place / "program.py").write_text(code)
    found = [SITE, *paths] if hooked else list(paths)
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, found))}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=place,
        env={FOLDER_VARIABLE: str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr, folder)
