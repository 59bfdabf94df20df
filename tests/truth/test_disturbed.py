"""What takes a core from a training now and then is in its step, and is told (method.md §8).

Planted: a model of one worker, and a process, or a thread of the model's own, that takes its core for a second, again
and again. The true step is elapsed time ÷ steps.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import polars as pl
import pytest

from commands import worldsize
from worldsize.analysis.study import analyse
from worldsize.measure.machine import allowed_cores
from worldsize.results.folder import load_run

BUDGET, AWAY_S, THERE_S = "30s", 3.0, 1.0
COMMAND = (
    *("study", "--strategies", "single", "--world-sizes", "1", "--batch-sizes", "128", "--threads-per-worker", "1"),
    *("--data", "synthetic:3x32x32:10:4096", "--evaluate", "never", "--budget", BUDGET),
)
MODEL = """
import os, threading, time, zlib
import torch
from torch import nn

def come_and_go():
    data = os.urandom(1_000_000)
    while True:
        time.sleep(AWAY_S)
        end = time.monotonic() + THERE_S
        while time.monotonic() < end:
            zlib.compress(data)

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.hidden, self.last = nn.Linear(1024, 1024), nn.Linear(1024, classes)

        self.called = 0

    def forward(self, x):
        self.called += 1
        if OWN_THREAD and self.called == 20:  # not where the model is only tried
            threading.Thread(target=come_and_go, daemon=True).start()
        x = x.flatten(1)[:, :1024]
        for _ in range(20):
            x = torch.relu(self.hidden(x))
        return self.last(x)

def net(classes):
    return Net(classes)
"""


def come_and_go(core: int) -> None:
    """Take the core now and then."""
    os.sched_setaffinity(0, {core})
    while True:
        time.sleep(AWAY_S)
        end = time.monotonic() + THERE_S
        while time.monotonic() < end:
            pass


@contextmanager
def somebody(core: int) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=come_and_go, args=(core,))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
        process.close()


@pytest.mark.parametrize("own_thread", [False, True], ids=["another process", "a thread of its own"])
def test_a_core_that_is_taken_now_and_then(tmp_path: Path, own_thread: bool) -> None:
    model, run = tmp_path / "planted.py", tmp_path / "run"
    model.write_text(f"OWN_THREAD, AWAY_S, THERE_S = {own_thread}, {AWAY_S}, {THERE_S}\n{MODEL}")
    with nullcontext() if own_thread else somebody(allowed_cores()[0]):
        ended = worldsize(*COMMAND, "--model", f"{model}:net", "--out", run, cwd=tmp_path)
        assert ended.returncode == 0, ended.stderr

    (cell,) = load_run(run).cells.values()
    summary = cell.record.summary
    assert summary is not None
    lines = pl.read_ndjson(cell.folder / "rank0.jsonl").filter("timed").sort("start_ns")
    elapsed_s = lines["step_s"].sum()
    assert summary.step_s.value == pytest.approx(elapsed_s / lines.height, rel=0.03)
    if own_thread:  # the short computation seldom meets it: it waits for Python's lock
        return
    assert summary.disturbed_steps > 0
    (warning,) = (warning for _, warning in analyse(load_run(run)).warnings if warning.code == "disturbed")
    assert "Other processes used" in warning.message
