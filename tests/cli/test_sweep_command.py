"""`worldsize sweep` with real processes: memory that ends by a limit, and by the kernel."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import worldsize
from worldsize.measure.conditions import memory_kills
from worldsize.results.folder import Run, load_run

MODEL = """
import torch
from torch import nn

class Hungry(nn.Module):
    '''Keeps 8 MiB of activations for each sample until backward.'''
    def __init__(self, classes):
        super().__init__()
        self.head = nn.Linear(192, classes)

    def forward(self, x):
        x = x.flatten(1)
        if not self.training:
            return self.head(x)
        wide = self.head(x).repeat(1, 2**21 // 10).exp()
        return wide[:, :10]

def net(classes):
    return Hungry(classes)
"""
SMALL = ("--model", "mine.py:net", "--data", "synthetic:3x8x8:10:4096", "--threads-per-worker", 1, "--steps", 2)
GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def outcomes(run: Run) -> dict[int, str]:
    """Local batch → state, and the kind of its error."""
    found = {}
    for cell in run.cells.values():
        error = cell.record.error
        found[cell.record.batch_size] = error.kind if error else cell.record.state
    return dict(sorted(found.items()))


def test_a_memory_limit_ends_the_sweep_and_all_ranks_agree(place: Path) -> None:
    done = worldsize(
        *("sweep", *SMALL, "--strategy", "ddp", "--world-size", 2, "--batch-size", 4, "--memory-limit", "1500MiB"),
        *("--resolution", "50%", "--hang-timeout", "1min", "--out", "run"),
        cwd=place,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = outcomes(load_run(place / "run"))
    assert found[4] == "complete"
    assert "OutOfMemory" in found.values()
    fits = [batch for batch, state in found.items() if state == "complete"]
    fails = [batch for batch, state in found.items() if state == "OutOfMemory"]
    assert max(fits) < min(fails)
    peaks = [c.record.peak_memory_bytes or 0 for c in load_run(place / "run").cells.values()]
    assert max(peaks) <= 1500 * 2**20
    assert "the largest local batch that fitted" in done.stdout.replace("\n", " ")


def test_a_limit_of_half_as_much_again_as_the_peak_is_enough(place: Path) -> None:
    study = ("study", *SMALL, "--strategies", "ddp", "--world-sizes", 2, "--batch-sizes", 4, "--evaluate", "never")
    assert worldsize(*study, "--out", "free", cwd=place).returncode == 0
    (cell,) = load_run(place / "free").cells.values()
    peak_bytes = cell.record.peak_memory_bytes
    assert peak_bytes is not None
    done = worldsize(*study, "--memory-limit", f"{1.5 * peak_bytes / 2**20:.0f}MiB", "--out", "limited", cwd=place)
    assert done.returncode == 0, done.stderr
    assert outcomes(load_run(place / "limited")) == {4: "complete"}


def test_a_limit_below_what_a_worker_needs_is_refused_in_plain_lines(place: Path) -> None:
    done = worldsize("sweep", *SMALL, "--batch-size", 4, "--memory-limit", "20MiB", "--out", "run", cwd=place)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert "memory limit" in done.stderr


@contextlib.contextmanager
def limited_group(size_bytes: int) -> Iterator[Path]:
    """A control group whose processes the kernel kills beyond this memory; skips where it cannot be made."""
    group = GROUPS / f"worldsize-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(size_bytes))
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no memory control group can be made here: {error}")
    try:
        yield group
    finally:
        group.rmdir()


def test_the_kernel_kills_and_the_sweep_knows_why(place: Path) -> None:
    if memory_kills() is None:
        pytest.skip("this kernel does not count the processes that it kills")
    with limited_group(2 * 2**30) as group:
        command = [sys.executable, "-m", "worldsize", "sweep", *map(str, SMALL), "--batch-size", "4", "--out", "run"]
        script = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, "sh", *command, "--resolution", "90%"], cwd=place, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stderr
    run = load_run(place / "run")
    found = outcomes(run)
    assert found[4] == "complete"
    assert "OutOfMemory" in found.values()
    errors = [cell.record.error for cell in run.cells.values() if cell.record.error]
    assert any("the kernel ended it because memory ran out" in error.message for error in errors)
