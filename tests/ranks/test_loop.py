"""What a rank does in its turns, and what steps that only measure leave as it was."""

import copy
import gc
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from tiny import alone, tiny_settings
from worldsize.analysis.steps import world_steps
from worldsize.measure.clocks import HostClock
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.training.trainer import Trainer
from worldsize.training.workload import RolledBack, TrainingWorkload

SLOW_DATA = """
import time
import torch
from torch.utils.data import Dataset

class Slow(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.02)
        return torch.full((3, 32, 32), index % 10 / 10), index % 10

def data():
    return Slow()
"""

LARGE_MODEL = """
from torch import nn

def net(classes):
    return nn.Sequential(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(3 * 16, 200_000), nn.Linear(200_000, classes))
"""

pytestmark = pytest.mark.usefixtures("clean_imports")


def state(trainer: Trainer) -> dict[str, Any]:
    """All that training changes, but for the place in the data."""
    return copy.deepcopy(
        {
            "model": trainer.strategy.unwrap().state_dict(),
            "optimizer": trainer.optimizer.state_dict(),
            "steps": trainer.steps,
        }
    )


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, in all that is nested."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


@pytest.mark.parametrize("trained_before", [0, 2])
@pytest.mark.parametrize("strategy", ["single", "data-parallel"])
def test_rolled_back_steps_leave_everything_as_it_was(tmp_path: Path, strategy: str, trained_before: int) -> None:
    trainer, _ = alone(tiny_settings(tmp_path, strategy=strategy))
    untouched, _ = alone(tiny_settings(tmp_path, strategy=strategy))
    for _ in range(trained_before):
        trainer.step()
        untouched.step()
    before = state(trainer)
    with RolledBack(trainer)():
        trainer.step(synchronise=False)
        assert not same(state(trainer), before)
    assert same(state(trainer), before)
    # The next step trains on the batch that it would have trained on anyway.
    assert torch.equal(trainer.step()[2], untouched.step()[2])
    assert same(state(trainer), state(untouched))


@pytest.mark.parametrize("trained_before", [0, 2])
@pytest.mark.parametrize("strategy", ["single", "data-parallel"])
def test_the_short_proof_leaves_everything_as_it_was(tmp_path: Path, strategy: str, trained_before: int) -> None:
    """Weights, BatchNorm statistics, optimizer, random state, and the place in the data."""
    settings = tiny_settings(tmp_path, strategy=strategy, world_size=1 if strategy == "single" else 2)
    trainer, data = alone(settings)
    untouched, _ = alone(settings)
    for _ in range(trained_before):
        trainer.step()
        untouched.step()
    before, random = state(trainer), torch.get_rng_state()
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        reply = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0).take(
            Turn(op="verify", count=2)
        )
    assert reply.check is not None
    assert len(reply.check.samples) == 2
    assert same(state(trainer), before)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in trainer.strategy.unwrap().parameters())
    assert trainer.timeline.watching
    assert torch.equal(trainer.step().loss, untouched.step().loss)
    assert same(state(trainer), state(untouched))
    assert not (tmp_path / "cell" / "rank0.jsonl").read_bytes(), "none of it is a step"


def test_the_copy_that_rolled_back_steps_need_is_made_once_and_is_no_memory_of_training(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE_MODEL)
    trainer, data = alone(tiny_settings(tmp_path, model=f"{tmp_path / 'large.py'}:net", batch_size=4))
    weights_bytes = sum(parameter.nbytes for parameter in trainer.strategy.unwrap().parameters())
    with Recorder(tmp_path / "cell", 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        trained = loop.take(Turn(op="steps", count=2)).peak_memory_bytes
        rolled_back = [loop.take(Turn(op="steps", count=1, synchronise=False)).peak_memory_bytes for _ in range(2)]
        once = psutil.Process().memory_info().rss
        again = loop.take(Turn(op="steps", count=1, observe=False)).peak_memory_bytes
        grown = psutil.Process().memory_info().rss - once
        later = loop.take(Turn(op="steps", count=2)).peak_memory_bytes
    assert [*rolled_back, again, later] == [trained] * 4
    assert grown < 0.5 * weights_bytes


def test_an_error_in_a_rolled_back_step_leaves_everything_as_it_was(tmp_path: Path) -> None:
    trainer, _ = alone(tiny_settings(tmp_path))
    before = state(trainer)

    def fail() -> None:
        with RolledBack(trainer)():
            trainer.step()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert same(state(trainer), before)


def test_the_step_that_leads_into_a_block_trains_and_is_not_timed(tmp_path: Path) -> None:
    reached = []
    for warmup in (0, 2):
        settings = tiny_settings(tmp_path)
        trainer, data = alone(settings)
        folder = tmp_path / f"lead{warmup}"
        with Recorder(folder, 0, HostClock()) as recorder:
            reply = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0).take(
                Turn(op="steps", count=5 - warmup, warmup=warmup)
            )
        assert len(reply.step_s) == 5 - warmup
        steps = Cell(folder, CellRecord.of(settings, id="cell")).steps
        assert steps.select("step", "timed").rows() == [(step, step >= warmup) for step in range(5)]
        reached.append((state(trainer), steps["loss"].to_list()))
    assert same(*reached)


@pytest.mark.quiet
def test_a_loop_that_waits_for_its_loader_is_timed_with_its_wait(tmp_path: Path) -> None:
    """Batches take far longer to make than to train on, and were made ahead while everything else began."""
    (tmp_path / "slow.py").write_text(SLOW_DATA)
    settings = tiny_settings(
        tmp_path, data=f"{tmp_path / 'slow.py'}:data", loader="per-sample", loader_workers=1, batch_size=4
    )
    trainer, data = alone(settings)
    folder = tmp_path / "cell"
    with Recorder(folder, 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        loop.take(Turn(op="steps", count=1, timed=False))
        time.sleep(0.6)
        replies = [loop.take(Turn(op="steps", count=2, warmup=1, block=block, anew=block == 0)) for block in range(2)]
    trainer.stream.close()
    del loop, trainer
    gc.collect()  # the loader ends its worker processes
    assert [len(reply.step_s) for reply in replies] == [2, 2]
    assert all(sum(reply.step_s) > 0.1 for reply in replies), "a batch takes 80 ms to make"
    cell = Cell(folder, CellRecord.of(settings, id="cell"))
    assert cell.steps["timed"].to_list() == [False, *([False, True, True] * 2)], "one step leads into each block"
    assert world_steps(cell)["step_s"].to_list() == pytest.approx([*replies[0].step_s, *replies[1].step_s], abs=1e-6)


def test_turns_are_done_and_recorded(tmp_path: Path) -> None:
    settings = tiny_settings(tmp_path, batch_size=700)  # two steps make an epoch
    trainer, data = alone(settings)
    folder = tmp_path / "cell"
    with Recorder(folder, 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=4)
        warmup = loop.take(Turn(op="steps", count=1, timed=False))
        epoch = loop.take(Turn(op="epoch", block=1))
        unpaired = loop.take(Turn(op="steps", block=2, count=1, synchronise=False))
        unseen = loop.take(Turn(op="steps", block=2, count=3, observe=False))
        found = loop.take(Turn(op="evaluate")).evaluation
        nothing = loop.take(Turn(op="finish"))
    assert [len(reply.step_s) for reply in (warmup, epoch, unpaired, unseen, nothing)] == [1, 2, 1, 3, 0]
    assert all(step_s > 0 for reply in (warmup, epoch, unpaired, unseen) for step_s in reply.step_s)
    assert nothing.peak_memory_bytes > 0.9 * warmup.peak_memory_bytes > 0
    assert found is not None
    assert (found.step, found.epoch, found.test_samples) == (3, 1, 360)
    cell = Cell(folder, CellRecord.of(settings, id="cell"))
    columns = ("session", "block", "step", "epoch", "timed", "samples")
    assert cell.steps.select(columns).rows() == [
        (4, 0, 0, 0, False, 700),
        (4, 1, 1, 0, True, 700),
        (4, 1, 2, 1, True, 700),
    ]
    own_s = cell.steps["step_s"].to_list()
    ends_s = [start_ns / 1e9 + step_s for start_ns, step_s in zip(cell.steps["start_ns"], own_s, strict=True)]
    assert own_s[:2] == [*warmup.step_s, epoch.step_s[0]]
    assert epoch.step_s[1] == pytest.approx(ends_s[2] - ends_s[1], abs=1e-6), "from end to end"
    assert epoch.step_s[1] >= own_s[2]
    assert cell.unsynchronised.select("block", "timed", "step_s").rows() == [(2, False, *unpaired.step_s)]
