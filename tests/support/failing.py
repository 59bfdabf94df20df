"""A study in a folder of its own that is made to fail: what it wrote, and what it left behind."""

import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import worldsize
from commands import processes_of, start
from worldsize.results.files import cell_folder

MODEL = """
import os, time
from pathlib import Path
from torch import nn

DROPOUT = float(os.environ.get("DROPOUT", "0.2"))
HERE, RANK = Path(__file__).parent, os.environ.get("RANK")

def hang():
    while True:
        time.sleep(3600)

class Net(nn.Sequential):
    def forward(self, images):
        if self.training and os.environ.get("WORLD_SIZE") == "2":
            time.sleep(float(os.environ.get("SLOW_S", "0")))
            if (HERE / f"hang-{RANK}").exists():
                hang()
            if (HERE / f"raise-{RANK}").exists():
                raise ValueError("this model fails here")
        return super().forward(images)

def net(classes):
    return Net(nn.AvgPool2d(8), nn.Flatten(), nn.Dropout(DROPOUT), nn.Linear(48, classes))
"""
HANGS_AT = MODEL.splitlines().index("        time.sleep(3600)") + 1
"""Line of the model at which it hangs."""
EPOCHS, EPOCH = 6, 8
"""Of the cell with two workers."""
DATA = ("--model", "mine.py:net", "--train-samples", 16 * EPOCH, "--test-samples", 20, "--threads-per-worker", 1)
TRAINING = (*DATA, "--epochs", EPOCHS, "--checkpoint", "--checkpoint-steps", 2, "--lr-schedule", "cosine")
GRID = ("--strategies", "single,all-reduce", "--world-sizes", "1,2", "--baseline", "single", "--batch-sizes", 8)
STUDY = ("study", *GRID, *TRAINING)
ALONE, PAIR = "single-w1-b8", "all-reduce-w2-b8"
SLOW_S = "0.1"


class Place:
    """A folder with a user's model, and a run folder `run` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        (folder / "mine.py").write_text(MODEL)
        (folder / "tmp").mkdir()
        self.shared: set[Path] = set()
        """Shared memory that processes here were seen to use."""

    def start(self, *arguments: object, **variables: str) -> Any:
        """`worldsize ARGUMENTS`, slow enough to be met in the middle; whatever is temporary is in a folder of ours."""
        temporary = {"TMPDIR": str(self.folder / "tmp"), "SLOW_S": SLOW_S}
        return start(*arguments, cwd=self.folder, **{**temporary, **variables})

    def go_on(self, *arguments: object, **variables: str) -> Any:
        """Begin the study, or go on with it."""
        begun = (self.run / "study.json").exists()
        way = ("study", "--resume") if begun else STUDY
        return self.start(*way, "--out", "run", *arguments, **variables)

    def undisturbed(self, *flags: object) -> None:
        """Run the study of these flags to its end: in this process and without a report, as its losses alone count."""
        here = {"TMPDIR": str(self.folder / "tmp"), "SLOW_S": "0"}
        with (
            contextlib.chdir(self.folder),
            patch.dict(os.environ, here),
            patch.object(tempfile, "tempdir", None),  # else it is where it was asked for first
        ):
            run = worldsize.study(out="run", report=False, progress=False, **settings_of(flags))
        assert {cell.record.state for cell in run.cells.values()} == {"complete"}
        assert self.left() == []

    def lines(self, cell: str = PAIR, rank: int = 0) -> list[bytes]:
        """The whole lines that a rank has written."""
        return whole_lines(cell_folder(self.run, cell) / f"rank{rank}.jsonl")

    def written(self) -> dict[Path, list[bytes]]:
        """All whole lines, by file; whoever asks is about to disturb somebody, so what they share is noted."""
        for process in processes_of(self.folder):
            self.shared |= shared_memory(process.pid)
        return {file: whole_lines(file) for file in self.run.glob("cells/*/rank*.jsonl")}

    def record(self, cell: str = PAIR) -> Any:
        return json.loads((cell_folder(self.run, cell) / "cell.json").read_text())

    def losses(self, cell: str = PAIR, rank: int = 0) -> dict[int, float]:
        """The loss of each step, that of its last run."""
        return {each["step"]: each["loss"] for each in map(json.loads, self.lines(cell, rank))}

    def left(self, *, killed: bool = False) -> list[str]:
        """What is left behind by everything that ran here. Who is killed with −9 leaves the file that it is writing."""
        scratch = [] if killed else [path for path in self.run.rglob(".*") if path.is_file()]
        # torch keeps a cache of its compiler there, one for all programs; it stays by intent.
        temporary = [path for path in (self.folder / "tmp").iterdir() if "torchinductor" not in path.name]
        shared = sorted(path for path in self.shared if path.exists())
        return [*map(str, processes_of(self.folder) + scratch + temporary + shared)]


def settings_of(flags: Iterable[object]) -> dict[str, Any]:
    """What flags are as arguments of a function: one without a value is True."""
    found: dict[str, Any] = {}
    name = ""
    for word in flags:
        flag = isinstance(word, str) and word.startswith("--")
        name = str(word).removeprefix("--").replace("-", "_") if flag else name
        found[name] = True if flag else word
    return found


def whole_lines(file: Path) -> list[bytes]:
    content = file.read_bytes() if file.exists() else b""
    return content.rpartition(b"\n")[0].splitlines()


def shared_memory(process: int) -> set[Path]:
    """What a process has open of the memory that outlives processes."""
    try:
        return {Path(path) for path in re.findall(r"/dev/shm/\S+", Path(f"/proc/{process}/maps").read_text())}
    except OSError:
        return set()


def is_kept(before: dict[Path, list[bytes]], after: dict[Path, list[bytes]]) -> bool:
    """Whether every line that was there is there, in the same place."""
    return all(after.get(file, [])[: len(lines)] == lines for file, lines in before.items())


def wait_for(condition: Callable[[], bool], what: str, patience_s: float = 400) -> None:
    """Wait for something that no event tells of."""
    until = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < until, f"not in {patience_s:.0f} s: {what}"
        time.sleep(0.05)
