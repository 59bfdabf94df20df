"""One study under each launcher: what starts the command, and with which flags."""

import csv
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from commands import finish
from ray_nodes import QUIET
from worldsize.results.folder import Run, load_run

MODEL = """
import os
import time

from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes):
        super().__init__(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(12, classes))

    def forward(self, images):
        if self.training and os.path.exists("raise") and os.environ["RANK"] == "1":
            raise ValueError("a shape that does not fit")
        time.sleep(0.1 if os.path.exists("slow") else 0)
        return super().forward(images)

def net(classes):
    return Net(classes)
"""
"""Behaves by files in its folder: variables do not reach the nodes of every cluster."""
DATA = ("--model", "mine.py:net", "--data", "synthetic:3x8x8:10:64", "--threads-per-worker", "1")
LADDER = ("study", "sync-ladder", *DATA, "--world-sizes", "1,2", "--global-batch", "8", "--hosts", "none")
STEPS = ("--steps", "4", "--block-steps", "2", "--warmup-steps", "1")

Command = Callable[[], Sequence[str]]


def plain(*flags: str) -> list[str]:
    """The command as a user types it."""
    return [sys.executable, "-m", "worldsize", *LADDER, *STEPS, *flags]


def under_torchrun() -> list[str]:
    """Two workers of torchrun, which meet by its c10d rendezvous."""
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "--nnodes", "1", "--nproc-per-node", "2")
    return [sys.executable, "-m", "torch.distributed.run", *meet, "-m", *plain()[2:]]


def over_two_nodes() -> list[str]:
    """Two agents, as a scheduler's command would start them."""
    return [sys.executable, str(Path(__file__).with_name("nodes_command.py")), *plain()[3:]]


def tables(run: Run) -> dict[str, tuple[list[str], list[str]]]:
    """Columns, and what the rows are called, of each table of a report; of provenance and warnings the columns."""
    found = {}
    for file in sorted((run.folder / "report").glob("*.csv")):
        with file.open(newline="", encoding="utf-8") as stream:
            head, *rows = csv.reader(stream)
        about_the_run = file.stem in ("provenance", "warnings")
        # Some put the fastest first, and that is for the clock to say.
        found[file.name] = head, [] if about_the_run else sorted(row[0] for row in rows)
    return found


def study(folder: Path, command: Sequence[str], variables: Mapping[str, str]) -> Run:
    """Run the command in the folder, with a user's model, to its end."""
    (folder / "mine.py").write_text(MODEL)
    done = finish(
        subprocess.Popen(
            [*command, "--out", "run"],
            cwd=folder,
            env={**os.environ, **QUIET, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ),
        folder,
    )
    assert done.returncode == 0, done.stderr
    return load_run(folder / "run")
