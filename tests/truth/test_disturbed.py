"""What something else does to the cores now and then is in no number, and what a step does by itself is (method.md §8).

Planted: a model of one worker, and a process that takes its core for a second, again and again. The true step is that
of the steps during which it did not run, by the clock that both share.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.hidden, self.last = nn.Linear(1024, 1024), nn.Linear(1024, classes)

    def forward(self, x):
        x = x.flatten(1)[:, :1024]
        for _ in range(20):
            x = torch.relu(self.hidden(x))
        return self.last(x)

def net(classes):
    return Net(classes)
"""


def come_and_go(core: int, log: str) -> None:
    """Take the core now and then; say from when to when."""
    os.sched_setaffinity(0, {core})
    with Path(log).open("w") as file:
        while True:
            time.sleep(AWAY_S)
            begin_ns = time.monotonic_ns()
            while time.monotonic_ns() - begin_ns < 1e9 * THERE_S:
                pass
            file.write(f"{begin_ns} {time.monotonic_ns()}\n")
            file.flush()


@contextmanager
def somebody(core: int, log: Path) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=come_and_go, args=(core, str(log)))
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
        process.close()


def planted(folder: Path) -> tuple[Path, float, float]:
    """A run beside which somebody takes the core; its true step, and that of all its steps (s)."""
    folder.mkdir()
    core, model, log = allowed_cores()[0], folder / "planted.py", folder / "there.txt"
    model.write_text(MODEL)
    with somebody(core, log):
        ended = worldsize(*COMMAND, "--model", f"{model}:net", "--out", folder / "run", cwd=folder)
        assert ended.returncode == 0, ended.stderr
    (cell,) = load_run(folder / "run").cells.values()
    lines = pl.read_ndjson(cell.folder / "rank0.jsonl").filter("timed")
    ends = pl.col("start_ns") + 1e9 * pl.col("step_s")
    seen = pl.read_csv(log, separator=" ", has_header=False).iter_rows()
    calm = lines.filter(~pl.any_horizontal((pl.col("start_ns") < end) & (ends > begin) for begin, end in seen))
    return folder / "run", float(calm["step_s"].to_numpy().mean()), float(lines["step_s"].to_numpy().mean())


def test_a_core_that_others_take_now_and_then(tmp_path: Path) -> None:
    # Who takes the core may come while nothing is timed: in 1 of 4 runs that made the mean step 5 % longer only. Such a
    # run plants nothing, so another is made; what holds of the first that is disturbed is not tried again.
    for number in range(3):
        run, true_s, all_s = planted(tmp_path / str(number))
        if all_s > 1.1 * true_s:
            break
    assert all_s > 1.1 * true_s, "the planted disturbance did not disturb"
    (cell,) = load_run(run).cells.values()
    assert cell.record.summary is not None
    assert cell.record.summary.step_s.value == pytest.approx(true_s, rel=0.05)
    warnings = [warning for _, warning in analyse(load_run(run)).warnings if warning.code == "disturbed"]
    assert len(warnings) == 1
    assert "Other processes used" in warnings[0].message
