"""Scripts that use torch.compile: seen whole, and compiled as often as they are by themselves."""

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from commands import LONG_S
from user_scripts import run_of, studied, typed
from worldsize.results.files import outputs_folder

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
ranks = int(os.environ.get("WORLD_SIZE", 1))
if ranks > 1:
    dist.init_process_group("gloo")

class Slow(nn.Linear):
    def forward(self, x):
        return super().forward(x).relu()

model = plain = nn.Sequential(Slow(8, 8), Slow(8, 8), nn.Linear(8, 1))
MAKE
optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
for number in range(int(os.environ.get("STEPS", 10**6))):
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
    "in-place": "model.compile(backend=backend, fullgraph=True)\n" + OF_MODEL,
    "blocks": "for i in range(3):\n    model[i] = torch.compile(model[i], backend=backend)\n" + OF_MODEL,
    "function": "@torch.compile(backend=backend, fullgraph=True)\n" + OF_MODEL,
    "averaged": (
        "if ranks > 1:\n    model = nn.parallel.DistributedDataParallel(model)\n"
        "model = torch.compile(model, backend=backend)\n" + OF_MODEL
    ),
}


def alone(place: Path, name: str, ranks: int) -> str:
    """How many graphs are compiled when nobody looks."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    folder = place / f"{name}-alone{ranks}"
    folder.mkdir()
    command = [sys.executable, *launcher, str(place / f"{name}.py")]
    subprocess.run(command, cwd=folder, env={**os.environ, "STEPS": "13"}, check=True, timeout=LONG_S)
    return (folder / "graphs").read_text()


@pytest.mark.parametrize("sizes", ["1", "2"])
def test_it_is_compiled_as_it_would_be_and_taken_apart(tmp_path: Path, sizes: str) -> None:
    forms = {name: form for name, form in FORMS.items() if ("ranks" in form) is (sizes == "2")}
    for name, form in forms.items():
        (tmp_path / f"{name}.py").write_text(SCRIPT.replace("MAKE", form))
    commands = [typed(f"{name}.py", torchrun=sizes == "2") for name in forms]
    run = run_of(tmp_path, studied(tmp_path, commands, "--keep-outputs", sizes=sizes))

    assert len(run.cells) == len(forms)
    for cell in run.cells.values():
        assert cell.record.batch_size == 6
        ranks = cell.record.world_size
        assert (outputs_folder(cell.folder) / "graphs").read_text() == alone(tmp_path, cell.record.strategy, ranks)
        steps = cell.step_columns("timed", "phases", "step").filter("timed")
        assert all({"forward", "backward", "optimizer"} <= set(phases) for phases in steps["phases"])
        evaluated = steps.filter(pl.col("phases").list.contains("evaluation"))
        [place] = {step % 3 for step in evaluated["step"]}
        assert len(evaluated) == len(steps.filter(pl.col("step") % 3 == place)), "in a step of three, and in each such"
