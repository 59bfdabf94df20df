"""Scripts that use torch.compile: seen whole, and compiled as often as they are by themselves."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import LONG_S
from user_scripts import run_of, studied
from worldsize.results.files import outputs_folders

SCRIPT = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn

graphs = 0
def backend(graph, inputs):
    global graphs
    graphs += 1
    return graph.forward

torch.set_num_threads(1)
torch.manual_seed(0)
ranks = int(os.environ["WORLD_SIZE"])
if ranks > 1:
    dist.init_process_group("gloo")

class Slow(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()

model = plain = nn.Sequential(Slow(8, 8), Slow(8, 8), nn.Linear(8, 1))
MAKE
optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
for number in range(int(sys.argv[1]) if sys.argv[1:] else 10**6):
    time.sleep(0.01)
    (loss_of(torch.ones(6, 8)) / ranks).backward()
    time.sleep(0.02)
    optimizer.step()
    optimizer.zero_grad()
    if number % 3 == 0:
        plain.eval()
        with torch.no_grad():
            model(torch.ones(6, 8))
            time.sleep(0.05)
        plain.train()
    if number == 12:
        with open("graphs", "w") as file:
            file.write(str(graphs))
"""
OF_MODEL = "def loss_of(x):\n    return model(x).square().mean()"
FORMS = {
    "in place": "model.compile(backend=backend, fullgraph=True)\n" + OF_MODEL,
    "blocks": "for i in range(3):\n    model[i] = torch.compile(model[i], backend=backend)\n" + OF_MODEL,
    "function": "@torch.compile(backend=backend, fullgraph=True)\n" + OF_MODEL,
    "averaged over ranks": (
        "if ranks > 1:\n    model = nn.parallel.DistributedDataParallel(model)\n"
        "model = torch.compile(model, backend=backend)\n" + OF_MODEL
    ),
}


def alone(folder: Path, ranks: int) -> str:
    """How many graphs are compiled when nobody looks."""
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *launcher, "../train.py", "13"]
    environment = {**os.environ, "WORLD_SIZE": "1"}
    subprocess.run(command, cwd=folder, env=environment, check=True, timeout=LONG_S)
    return (folder / "graphs").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_it_is_compiled_as_it_would_be_and_taken_apart(tmp_path: Path, form: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("MAKE", FORMS[form]))
    sizes = "2" if "ranks" in FORMS[form] else "1"
    run = run_of(tmp_path, studied(tmp_path, "train.py", "--keep-outputs", sizes=sizes))

    for cell in run.cells.values():
        assert cell.record.batch_size == 6
        [outputs] = outputs_folders(cell.folder)
        ranks = cell.record.world_size
        assert (outputs / "graphs").read_text() == alone(tmp_path / f"alone{ranks}", ranks)
        timed = cell.step_columns("timed", "phases", "step").filter("timed")
        assert all({"forward", "backward", "optimizer"} <= set(phases) for phases in timed["phases"])
        assert len({step % 3 for step in timed["step"]}) == 2, "a step in three has an evaluation"
