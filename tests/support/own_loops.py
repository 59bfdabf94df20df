"""Training loops that people write, metered in processes of their own; what they do and how long is planted."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
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
DATA = """
inputs, labels = torch.randn(40, 16), torch.randint(0, 4, (40,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=4)
net = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
model = nn.parallel.DistributedDataParallel(net) if WORLD > 1 else net
optimizer = torch.optim.AdamW(model.parameters())
"""
ACCUMULATED = (
    DATA
    + """
meter = worldsize.meter(model, optimizer)
for epoch in range(3):
    for number, (x, y) in enumerate(meter(loader)):
        cross_entropy(model(x), y).backward()
        if (number + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        model(inputs)  # an evaluation is no part of a step
    model.train()
sys.stdout.write(f"WEIGHTS {sum(p.double().sum().item() for p in model.parameters()).hex()}\\n")
end()
"""
)
"""A loop whose optimizer steps after four micro-steps, with an evaluation after each epoch."""


def ran(folder: Path, code: str, *, workers: int) -> None:
    """Run HEAD and some code in a folder under torchrun, metered into `run`, as a user does; it must end well."""
    script = folder / "loop.py"
    script.write_text(HEAD + code)
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers))
    done = subprocess.run(
        [sys.executable, *torchrun, str(script)],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "WORLDSIZE_METER": "run"},
        capture_output=True,
        text=True,
        timeout=LONG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


class WarmLoops:
    """Runs loops in processes that are forked from one that has loaded torch: the same, without seconds of loading."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def ran(self, folder: Path, code: str, *, workers: int = 1, out: str | None = "run") -> str:
        """Run HEAD and some code in a folder, in several processes of a group; what they printed. It must end well."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        script = folder / "loop.py"
        script.write_text(HEAD + code)
        metered = {} if out is None else {"WORLDSIZE_METER": out}
        port = str(free_port())
        several = [{**variables_of(rank, workers), "MASTER_PORT": port} for rank in range(workers)]
        groups = several if workers > 1 else [{}]
        order = {"script": str(script), "folder": str(folder), "processes": [{**metered, **each} for each in groups]}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert not any(answer["statuses"]), answer["said"]
        return str(answer["said"])


def variables_of(rank: int, workers: int) -> dict[str, str]:
    """What torchrun tells a process of a group on one host, but for the port."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": workers, "LOCAL_WORLD_SIZE": workers}
    return {"MASTER_ADDR": "127.0.0.1", **{name: str(value) for name, value in ranks.items()}}


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def warm_loops() -> Iterator[WarmLoops]:
    """Such a process, for as long as loops are to be run."""
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "forked_loops.py")],
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield WarmLoops(process)
        finally:
            process.kill()  # an end in good order, of all that it has loaded, takes seconds


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
