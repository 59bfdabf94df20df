"""Processes that a user's own loader forks stand still while its cell waits for its turn (method.md §8)."""

import gc
import multiprocessing
import time
from pathlib import Path

import psutil
import pytest
import torch

from commands import LONG_S, processes_of, start, wait_until
from in_process import worldsize
from worldsize.config import CellSettings
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.folder import load_run
from worldsize.strategies import Channel, World
from worldsize.training.trainer import Trainer
from worldsize.training.user_task import OwnBatches, UserTask
from worldsize.training.workload import TrainingWorkload

pytestmark = pytest.mark.usefixtures("clean_imports")

SOURCE = """
import torch
from torch import nn
from torch.utils.data import DataLoader

class Mine:
    def model(self):
        return nn.Linear(4, 1)

    def batches(self, rank, world_size, local_batch):
        yield from DataLoader(torch.ones(400, 4), local_batch, num_workers=2)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""
MADE = """
import multiprocessing
import torch
from torch import nn

FORK = multiprocessing.get_context("fork")

def fill(made):
    while True: made.put([1.0, 1.0, 1.0, 1.0])

class Mine:
    def __init__(self):
        self.made = FORK.Queue(6)
        for _ in range(3): FORK.Process(target=fill, args=(self.made,), daemon=True).start()

    def model(self):
        return nn.Linear(4, 1)

    def batches(self, rank, world_size, local_batch):
        while True: yield torch.tensor([self.made.get()] * local_batch)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""


def states() -> list[str]:
    """Of the processes that this one has started."""
    return [child.status() for child in psutil.Process().children()]


def stopped_soon(count: int) -> bool:
    """Whether so many stand still: one that waits for a core stops when it has one."""
    until = time.monotonic() + 20
    while states().count(psutil.STATUS_STOPPED) != count and time.monotonic() < until:
        time.sleep(0.01)
    return states().count(psutil.STATUS_STOPPED) == count


def test_they_stand_still_between_turns_and_end_with_the_cell(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    settings = CellSettings(workload=f"{tmp_path / 'mine.py'}:Mine", batch_size=4, strategy="single", world_size=1)
    timeline, before = Timeline(HostClock()), len(states())
    trainer = Trainer(settings, UserTask(settings), World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)
    processes = []
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, None, recorder.folder), recorder, session=0)
        for synchronise, stopped in ((True, 2), (False, 4), (True, 4)):  # rolled-back steps have a loader of their own
            loop.take(Turn(op="steps", count=2, synchronise=synchronise))
            assert stopped_soon(stopped)
            assert isinstance(trainer.batches, OwnBatches)
            processes.append(trainer.batches.loader_processes)
        loop.close()
    del loop, trainer
    gc.collect()
    assert processes == [2, 2, 2]
    assert len(states()) == before


def test_what_its_constructor_has_forked_stands_still_as_well(tmp_path: Path) -> None:
    """It feeds all batches: those of training, and those of steps that only measure."""
    (tmp_path / "mine.py").write_text(MADE)
    settings = CellSettings(workload=f"{tmp_path / 'mine.py'}:Mine", batch_size=4, strategy="single", world_size=1)
    timeline, before = Timeline(HostClock()), set(multiprocessing.active_children())
    task = UserTask(settings)
    trainer = Trainer(settings, task, World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)
    task.stand_still()
    assert stopped_soon(3)
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, None, recorder.folder), recorder, session=0)
        for synchronise in (True, False, True):
            loop.take(Turn(op="steps", count=8, synchronise=synchronise))
            assert stopped_soon(3)
        loop.close()
    assert stopped_soon(0)
    assert isinstance(trainer.batches, OwnBatches)
    assert trainer.batches.loader_processes == 3
    for process in set(multiprocessing.active_children()) - before:
        process.terminate()
        process.join()


def test_compiling_reads_a_batch_before_anything_stands_still(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MADE)
    settings = CellSettings(workload=f"{tmp_path / 'mine.py'}:Mine", batch_size=4, strategy="single", world_size=1)
    timeline, before = Timeline(HostClock()), set(multiprocessing.active_children())
    trainer = Trainer(settings, UserTask(settings), World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)
    trainer._trial_backward()
    assert stopped_soon(0)
    for process in set(multiprocessing.active_children()) - before:
        process.terminate()
        process.join()


def test_the_proof_reads_both_loaders(tmp_path: Path) -> None:
    """Averaged weights are proved in rolled-back steps: their processes are woken in later ones."""
    (tmp_path / "mine.py").write_text(SOURCE)
    grid = ("--strategies", "local-sgd", "--world-sizes", 2, "--batch-sizes", 4, "--threads-per-worker", 1)
    steps = ("--steps", 16, "--block-steps", 8, "--sync-every", 2, "--sync-warmup-steps", 0, "--hang-timeout", "20s")
    done = worldsize("study", "--workload", "mine.py:Mine", *grid, *steps, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    assert cell.record.state == "complete"
    assert not cell.unsynchronised.is_empty()


def test_a_study_makes_whole_bursts_of_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MADE)
    one = ("--strategies", "single", "--world-sizes", 1, "--batch-sizes", 4, "--threads-per-worker", 1)
    fixed = ("--steps", 8, "--block-steps", 4, "--warmup-steps", 1, "--out", "run")
    done = worldsize("study", "--workload", "mine.py:Mine", *one, *fixed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    first = cell.steps.filter(block=0)["timed"].to_list()
    assert first[-9:] == [False] * 3 + [True] * 6


def test_stopped_ones_do_not_outlive_a_killed_command(tmp_path: Path) -> None:
    """What stands still cannot see that its parent has gone: the kernel ends it."""
    (tmp_path / "mine.py").write_text(SOURCE.replace("torch.ones(400, 4)", "torch.ones(10**6, 4)"))
    one = ("--strategies", "single", "--world-sizes", "1", "--batch-sizes", "4", "--budget", "60s", "--out", "run")
    study = start("study", "--workload", "mine.py:Mine", *one, cwd=tmp_path)
    wait_until(lambda: (tmp_path / "run/cells/single-w1-b4/rank0.jsonl").exists(), study)
    study.kill()
    study.communicate(timeout=LONG_S)
    until = time.monotonic() + 45
    while (left := processes_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left
