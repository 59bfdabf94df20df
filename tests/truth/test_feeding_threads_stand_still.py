"""A loop whose batches are made by threads, ahead, waits for them whatever other cells do in between (method.md §8).

Planted: W threads that take a known time for a batch each, a model that sleeps for a known time, and room for many
batches between them. Left to themselves the threads would fill it while other cells are timed.
"""

from pathlib import Path

import numpy as np
import pytest

import worldsize
from repeated import Repeated
from user_scripts import run_of, studied
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

def feeding(workers, interval_s):
    made = queue.Queue(16)
    def make():
        while True:
            time.sleep(workers * interval_s)
            made.put(torch.ones(8, 8))
    for _ in range(workers):
        threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()
"""
STAGES = """
import queue, threading, time
import torch
from torch import nn

def feeding(workers, interval_s):
    raw, made = queue.Queue(16), queue.Queue(4)
    def read():
        while True:
            time.sleep(workers * interval_s)
            raw.put(torch.ones(8, 8))
    def transform():
        while True:
            made.put(raw.get() + 0)
    for _ in range(workers):
        threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=transform, daemon=True).start()
    while True:
        yield made.get()
"""
FUTURES = """
import collections, concurrent.futures, time
import torch
from torch import nn

def feeding(workers, interval_s):
    def load():
        time.sleep(workers * interval_s)
        return torch.ones(8, 8)
    pool = concurrent.futures.ThreadPoolExecutor(workers)
    ahead = collections.deque(pool.submit(load) for _ in range(16))
    while True:
        batch = ahead.popleft().result()
        ahead.append(pool.submit(load))
        yield batch
"""
EARLY = """
import queue, threading, time
import torch
from torch import nn

made = queue.Queue(16)
def make():
    while True:
        time.sleep(WORKERS * INTERVAL_S)
        made.put(torch.ones(8, 8))
for _ in range(WORKERS):
    threading.Thread(target=make, daemon=True).start()
time.sleep(16 * INTERVAL_S)  # as a large model takes that is built

def feeding(workers, interval_s):
    while True:
        yield made.get()
"""
LOADER = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

class Slow(IterableDataset):
    def __iter__(self):
        while True:
            time.sleep(WORKERS * INTERVAL_S)
            yield torch.ones(8, 8)

ahead = iter(DataLoader(Slow(), batch_size=None, num_workers=WORKERS, prefetch_factor=8))
time.sleep(8 * WORKERS * INTERVAL_S)

def feeding(workers, interval_s):
    yield from ahead
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
        return feeding(WORKERS, INTERVAL_S)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""
SCRIPT = """
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in feeding(WORKERS, INTERVAL_S):
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
WAYS = {"queues": QUEUES, "stages": STAGES, "futures": FUTURES, "early": EARLY, "loader": LOADER}


def planted(way: str, end: str, workers: int, interval_s: float) -> str:
    code = WAYS[way] + NET + end
    for name, value in (("WORKERS", workers), ("INTERVAL_S", interval_s), ("COMPUTE_S", COMPUTE_S)):
        code = code.replace(name, str(value))
    return code


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


def of_scripts(folder: Path, code: str) -> Run:
    """Two scripts that are alike, in turns."""
    for name in ("one.py", "two.py"):
        (folder / name).write_text(code)
    return run_of(folder, studied(folder, "one.py", "--script", "two.py", sizes="1"))


@pytest.mark.parametrize(
    ("way", "workers", "measure"),
    [
        ("queues", 1, of_class),
        ("queues", 4, of_scripts),
        ("stages", 1, of_class),
        ("futures", 2, of_scripts),
        ("early", 1, of_class),
        ("early", 1, of_scripts),
        ("loader", 2, of_scripts),
    ],
)
def test_threads_stand_still_while_their_cell_does(tmp_path: Path, way: str, workers: int, measure: object) -> None:
    """A step takes as long as a batch does, and waits for what is left of that when the model has slept."""
    assert callable(measure)
    code = planted(way, CLASS if measure is of_class else SCRIPT, workers, INTERVAL_S)

    def once() -> Run:
        place = tmp_path / f"try{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        run: Run = measure(place, code)
        return run

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
