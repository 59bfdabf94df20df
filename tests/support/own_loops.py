"""Training loops that people write, metered in processes of their own; what they do and how long is planted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands import LONG_S
from worldsize.results.files import cell_folder
from worldsize.results.folder import Cell, load_run

HEAD = """
import os, sys, time, warnings
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
import worldsize
torch.set_num_threads(1)
torch.manual_seed(0)
WORLD = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
if WORLD > 1:
    dist.init_process_group("gloo")

def end():
    if WORLD > 1:
        dist.destroy_process_group()
"""


def ran(folder: Path, code: str, *, workers: int = 1, out: str | None = "run", **variables: str) -> str:
    """Run HEAD and some code in a folder, under torchrun for several workers; what it printed. It must end well."""
    script = folder / "loop.py"
    script.write_text(HEAD + code)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers))
    metered = {} if out is None else {"WORLDSIZE_METER": out}
    done = subprocess.run(
        [sys.executable, *(torchrun if workers > 1 else ()), str(script)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **metered, **variables},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def only_cell(folder: Path) -> Cell:
    """The cell of a metered run."""
    [cell] = load_run(folder).cells.values()
    return cell


def step_lines(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The lines of a rank's steps."""
    file = cell_folder(folder, only_cell(folder).record.id) / f"rank{rank}.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def span_lines(folder: Path, rank: int = 0) -> list[dict[str, Any]]:
    """The lines of a rank's messages."""
    file = cell_folder(folder, only_cell(folder).record.id) / f"rank{rank}.spans.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]
