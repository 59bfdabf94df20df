"""Processes that a user's own loader forks stand still while its cell waits for its turn (method.md §8)."""

import gc
import time
from pathlib import Path

import psutil
import pytest
import torch

from commands import LONG_S, processes_of, start, wait_until
from worldsize.config import CellSettings
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
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


def states() -> list[str]:
    """Of the processes that this one has started."""
    return [child.status() for child in psutil.Process().children()]


def test_they_stand_still_between_turns_and_end_with_the_cell(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE)
    settings = CellSettings(workload=f"{tmp_path / 'mine.py'}:Mine", batch_size=4, strategy="single", world_size=1)
    timeline, before = Timeline(HostClock()), len(states())
    trainer = Trainer(settings, UserTask(settings), World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)
    stopped, processes = [], []
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, None, recorder.folder), recorder, session=0)
        for synchronise in (True, False, True):
            loop.take(Turn(op="steps", count=2, synchronise=synchronise))
            stopped.append(states().count(psutil.STATUS_STOPPED))
            assert isinstance(trainer.batches, OwnBatches)
            processes.append(trainer.batches.loader_processes)
        loop.close()
    del loop, trainer
    gc.collect()
    assert stopped == [2, 4, 4], "rolled-back steps have a loader of their own"
    assert processes == [2, 2, 2]
    assert len(states()) == before


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
