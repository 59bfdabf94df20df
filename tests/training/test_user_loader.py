"""What a user's own loader has started stands still while its cell waits for its turn, and ends with it (method.md §8).

How long steps then take is tests/truth/test_waiting_loaders.py.
"""

import multiprocessing
import time
from pathlib import Path

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
        yield from DataLoader(torch.ones(SAMPLES, 4), local_batch, num_workers=2, multiprocessing_context="METHOD")

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
ONE = ("--strategies", "single", "--world-sizes", "1", "--batch-sizes", "4", "--threads-per-worker", "1")


def source(folder: Path, method: str = "fork", samples: int = 400) -> str:
    (folder / "mine.py").write_text(SOURCE.replace("METHOD", method).replace("SAMPLES", str(samples)))
    return f"{folder / 'mine.py'}:Mine"


def trainer_of(workload: str) -> Trainer:
    settings = CellSettings(workload=workload, batch_size=4, strategy="single", world_size=1)
    timeline = Timeline(HostClock())
    return Trainer(settings, UserTask(settings), World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)


def test_steps_that_only_measure_read_on_in_the_data_of_training(tmp_path: Path) -> None:
    """A second loader beside the first would take its cores."""
    trainer, before = trainer_of(source(tmp_path)), len(multiprocessing.active_children())
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, None, recorder.folder), recorder, session=0)
        for synchronise in (True, False, True):
            loop.take(Turn(op="steps", count=2, synchronise=synchronise))
            assert isinstance(trainer.batches, OwnBatches)
            assert trainer.batches.loader_processes == before + 2
        assert trainer.steps == 4
        loop.close()
    assert len(multiprocessing.active_children()) == before


def test_timed_steps_begin_with_a_loader_that_has_made_nothing(tmp_path: Path) -> None:
    """While everything else began it has made as much as it may; a loop that waits for it would not wait."""
    trainer = trainer_of(source(tmp_path))
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, None, recorder.folder), recorder, session=0)
        loop.take(Turn(op="steps", count=2, timed=False))
        first = set(multiprocessing.active_children())
        loop.take(Turn(op="steps", count=2, warmup=1, anew=True))
        assert first.isdisjoint(multiprocessing.active_children())
        loop.take(Turn(op="steps", count=2, warmup=1))
        loop.close()
    assert trainer.steps == 8


def test_compiling_leaves_the_data_of_training_alone(tmp_path: Path) -> None:
    trainer = trainer_of(source(tmp_path))
    trainer._trial_backward()
    assert not multiprocessing.active_children(), "its loader has ended with it"


def test_the_proof_reads_a_loader_of_its_own(tmp_path: Path) -> None:
    source(tmp_path)
    grid = ("--strategies", "local-sgd", "--world-sizes", 2, "--batch-sizes", 4, "--threads-per-worker", 1)
    steps = ("--steps", 16, "--block-steps", 8, "--sync-every", 2, "--sync-warmup-steps", 0, "--hang-timeout", "20s")
    done = worldsize("study", "--workload", "mine.py:Mine", *grid, *steps, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    assert cell.record.state == "complete"
    assert not cell.unsynchronised.is_empty()


def test_a_study_makes_whole_bursts_of_them(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MADE)
    fixed = ("--steps", 8, "--block-steps", 4, "--warmup-steps", 1, "--out", "run")
    done = worldsize("study", "--workload", "mine.py:Mine", *ONE, *fixed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [cell] = load_run(tmp_path / "run").cells.values()
    first = cell.steps.filter(block=0)["timed"].to_list()
    assert first[-9:] == [False] * 3 + [True] * 6


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_stopped_ones_do_not_outlive_a_killed_command(tmp_path: Path, method: str) -> None:
    """What stands still cannot see that its parent has gone: the kernel wakes it."""
    source(tmp_path, method, 10**6)
    study = start("study", "--workload", "mine.py:Mine", *ONE, "--budget", "60s", "--out", "run", cwd=tmp_path)
    wait_until(lambda: (tmp_path / "run/cells/single-w1-b4/rank0.jsonl").exists(), study)
    study.kill()
    study.communicate(timeout=LONG_S)
    until = time.monotonic() + 45
    while (left := processes_of(tmp_path)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left
