"""Whatever makes batches ahead stands still while its cell waits for its turn (method.md §8).

Planted: a loader that takes a known time for a batch, a model that rests for a known time, and room for many batches
between them. Left to itself the loader would fill it while other cells are timed. Both rest in short pieces: the clock
of the machine goes on while a cell is stopped, and would end a longer one.
"""

import shutil
import subprocess
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

INTERVAL_S = 0.08
RESTING = """
import time

def rest(seconds):
    while seconds > 0:
        begun = time.monotonic()
        time.sleep(min(seconds, 0.002))
        slept = time.monotonic() - begun
        seconds -= slept if slept < 0.003 else 0.002
"""
HEAD = """
import sys
sys.path.insert(0, FOLDER)
import ctypes, os, queue, subprocess, threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn
from torch.utils.data import DataLoader
from resting import rest

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        rest(COMPUTE_S)
        return self.layer(x)

class Mine:
    def model(self):
        return Net()

    def batches(self, rank, world_size, local_batch):
        return feeding()

    def loss(self, model, batch):
        return model(batch).square().mean()
"""
THREAD = """
def feeding():
    made = queue.Queue(16)
    def make():
        while True:
            rest(INTERVAL_S)
            made.put(torch.ones(8, 8))
    threading.Thread(target=make, daemon=True).start()
    while True:
        yield made.get()
"""
STAGES = """
def feeding():
    raw, made = queue.Queue(16), queue.Queue(4)
    def read():
        while True:
            rest(INTERVAL_S)
            raw.put(torch.ones(8, 8))
    def transform():
        while True:
            made.put(raw.get() + 0)
    threading.Thread(target=read, daemon=True).start()
    threading.Thread(target=transform, daemon=True).start()
    while True:
        yield made.get()
"""
POOL = """
def feeding():
    def make():
        rest(INTERVAL_S)
        return torch.ones(8, 8)
    pool = ThreadPoolExecutor(1)
    made = [pool.submit(make) for _ in range(16)]
    while True:
        made.append(pool.submit(make))
        yield made.pop(0).result()
"""
PROCESS = """
from slow import Slow

def feeding():
    return DataLoader(Slow(), None, num_workers=1, prefetch_factor=8, multiprocessing_context="METHOD")
"""
SLOW = """
import torch
from resting import rest

class Slow(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            rest(INTERVAL_S)
            yield torch.ones(8, 8)
"""
PIPE = """
    while True:
        os.read(made, 1)
        yield torch.ones(8, 8)
"""
PROGRAM = f"""
def feeding():
    code = "import os, resting\\nwhile True:\\n resting.rest(INTERVAL_S)\\n os.write(1, b'.')"
    made = subprocess.Popen([sys.executable, "-c", code], cwd=FOLDER, stdout=subprocess.PIPE).stdout.fileno()
{PIPE}
"""
NATIVE = f"""
def feeding():
    made, full = os.pipe()
    ctypes.CDLL(FOLDER + "/native.so").start(full)
{PIPE}
"""
NATIVE_SOURCE = """
#include <pthread.h>
#include <time.h>
#include <unistd.h>
static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}
static void *make(void *to) {
    for (;;) {
        for (double left_s = INTERVAL_S; left_s > 0;) {
            double begun_s = now_s();
            usleep(left_s < 0.002 ? 1e6 * left_s : 2000);
            double slept_s = now_s() - begun_s;
            left_s -= slept_s < 0.003 ? slept_s : 0.002;
        }
        if (write((int)(long)to, ".", 1) < 1) return to;
    }
}
void start(long descriptor) {
    pthread_t thread;
    pthread_create(&thread, 0, make, (void *)descriptor);
}
"""
WAYS = {
    "thread": (THREAD, 0.04),
    "stages": (STAGES, 0.05),
    "pool": (POOL, 0.04),
    "fork": (PROCESS.replace("METHOD", "fork"), 0.05),
    "spawn": (PROCESS.replace("METHOD", "spawn"), 0.04),
    "forkserver": (PROCESS.replace("METHOD", "forkserver"), 0.05),
    "program": (PROGRAM, 0.04),
    "native thread": (NATIVE, 0.05),
}


def planted(folder: Path, way: str) -> str:
    """The class, in a file beside what it needs."""
    code, compute_s = WAYS[way]
    if way == "native thread":
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("there is no C compiler")
        (folder / "native.c").write_text(NATIVE_SOURCE.replace("INTERVAL_S", str(INTERVAL_S)))
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", "native.so", "native.c", "-lpthread"], cwd=folder, check=True
        )
    (folder / "resting.py").write_text(RESTING)
    (folder / "slow.py").write_text(SLOW.replace("INTERVAL_S", str(INTERVAL_S)))
    code = (HEAD + code).replace("INTERVAL_S", str(INTERVAL_S)).replace("COMPUTE_S", str(compute_s))
    (folder / "own.py").write_text(code.replace("FOLDER", repr(str(folder))))
    return f"{folder / 'own.py'}:Mine"


def of_class(folder: Path, name: str) -> Run:
    """Two cells in turns: while one is timed, what feeds the other has nothing to do."""
    worldsize.study(
        out=folder,
        workload=name,
        strategies=("single", "ddp"),
        world_sizes=(1,),
        batch_sizes=(8,),
        steps=24,
        target_interval=0,
    )
    return load_run(folder)


@pytest.mark.parametrize("way", WAYS)
def test_it_stands_still_while_its_cell_does(tmp_path: Path, way: str) -> None:
    """A step takes as long as a batch does, and waits for what is left of that when the model has rested."""
    name, compute_s = planted(tmp_path, way), WAYS[way][1]

    def holds(run: Run) -> None:
        assert len(run.cells) == 2
        for cell in run.cells.values():
            step_s = float(np.mean(world_steps(cell)["step_s"].to_numpy()))
            wait_s = with_parts(cell).filter("timed").select("data_wait_s").mean().collect().item()
            rested_s = max(INTERVAL_S, compute_s)
            assert step_s == pytest.approx(rested_s, rel=0.05)
            assert wait_s == pytest.approx(rested_s - compute_s, abs=0.05 * rested_s)
        assert "input-bound" in {each.code for each in advise(analyse(run))}

    Repeated(lambda: of_class(tmp_path / f"run{len(list(tmp_path.iterdir()))}", name)).check(holds)
