"""A loop whose batches are made by threads, ahead, waits for them whatever other cells do in between (method.md §8).

Planted: a thread that takes a known time for a batch, a model that sleeps for a known time, and room for many batches
between them. Left to itself the thread would fill it while other cells are timed. Of scripts that is test_scripts.py.
"""

from pathlib import Path

import numpy as np
import pytest

import worldsize
from repeated import Repeated
from worldsize.analysis.advice import advise
from worldsize.analysis.parts import with_parts
from worldsize.analysis.steps import world_steps
from worldsize.analysis.study import analyse
from worldsize.results.folder import Run, load_run

pytestmark = [pytest.mark.quiet, pytest.mark.usefixtures("clean_imports")]

COMPUTE_S, INTERVAL_S = 0.04, 0.08
QUEUES = """
import queue, threading, time
import torch
from torch import nn

def feeding(interval_s):
    made = queue.Queue(16)
    def make():
        while True:
            time.sleep(interval_s)
            made.put(torch.ones(8, 8))
    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()
"""
STAGES = """
import queue, threading, time
import torch
from torch import nn

def feeding(interval_s):
    raw, made = queue.Queue(16), queue.Queue(4)
    def read():
        while True:
            time.sleep(interval_s)
            raw.put(torch.ones(8, 8))
    def transform():
        while True:
            made.put(raw.get() + 0)
    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=transform, daemon=True).start()
    while True:
        yield made.get()
"""
EARLY = """
import queue, threading, time
import torch
from torch import nn

made = queue.Queue(16)
def make():
    while True:
        time.sleep(INTERVAL_S)
        made.put(torch.ones(8, 8))
threading.Thread(target=make, daemon=True).start()
time.sleep(16 * INTERVAL_S)  # as a large model takes that is built

def feeding(interval_s):
    while True:
        yield made.get()
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        time.sleep(COMPUTE_S)
        return self.layer(x)
"""
CLASS = """
class Mine:
    def model(self):
        return Net()

    def batches(self, rank, world_size, local_batch):
        return feeding(INTERVAL_S)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""
WAYS = {"queues": QUEUES, "stages": STAGES, "early": EARLY}


def planted(way: str) -> str:
    code = WAYS[way] + NET + CLASS
    return code.replace("INTERVAL_S", str(INTERVAL_S)).replace("COMPUTE_S", str(COMPUTE_S))


def of_class(folder: Path, code: str) -> Run:
    """Two cells in turns: while one is timed, the threads of the other have nothing to do."""
    (folder / "own.py").write_text(code)
    worldsize.study(
        out=folder / "run",
        workload=f"{folder / 'own.py'}:Mine",
        strategies=("single", "ddp"),
        world_sizes=(1,),
        batch_sizes=(8,),
        steps=24,
        target_interval=0,
    )
    return load_run(folder / "run")


@pytest.mark.parametrize("way", WAYS)
def test_threads_stand_still_while_their_cell_does(tmp_path: Path, way: str) -> None:
    """A step takes as long as a batch does, and waits for what is left of that when the model has slept."""
    code = planted(way)

    def once() -> Run:
        place = tmp_path / f"try{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        return of_class(place, code)

    def holds(run: Run) -> None:
        assert len(run.cells) == 2
        for cell in run.cells.values():
            step_s = float(np.mean(world_steps(cell)["step_s"].to_numpy()))
            wait_s = with_parts(cell).filter("timed").select("data_wait_s").mean().collect().item()
            assert step_s == pytest.approx(INTERVAL_S, rel=0.05)
            assert wait_s == pytest.approx(INTERVAL_S - COMPUTE_S, abs=0.05 * INTERVAL_S)
            assert "loaders-go-on" not in {each.code for each in cell.record.warnings}
        assert "input-bound" in {each.code for each in advise(analyse(run))}

    Repeated(once).check(holds)
