"""A loop that waits for its loader is seen to, whatever other cells do in between (method.md §8).

Planted: a model that computes for a known time, and W loader processes that make a batch each in a known time. A step
is the longer of the two, and waits for the difference. A batch that lies ready is not free either: a process hands it
over, which took 2 ms of a step of 68 on two idle cores, and 4 of 75 where others computed. What that costs, and what
torch takes for a step beside the planted time, is timed right after each measurement, in a loop of torch alone.
"""

import gc
import math
import os
import signal
import time
import warnings
from multiprocessing import active_children
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import worldsize
from repeated import Repeated
from tiny import alone, tiny_settings
from worldsize.analysis.advice import advise
from worldsize.analysis.parts import with_parts
from worldsize.analysis.steps import world_steps
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.measure.clocks import HostClock
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.folder import Cell, load_run
from worldsize.results.records import CellRecord
from worldsize.training.workload import TrainingWorkload

pytestmark = [pytest.mark.quiet, pytest.mark.usefixtures("clean_imports")]

BATCH, COMPUTE_S, BLOCKS, PAUSE_S = 8, 0.06, 2, 0.4
REST = 0.05
"""How much longer the rest of a step may be than in a loop of torch alone, which takes 64 or 70 ms by run. A wait taken
for computing makes it 4 to 14 % longer where the loader has 0.8 of the rate, else far more."""
PLANTED = """
import time
import torch
from torch import nn
from torch.utils.data import Dataset

class Slow(Dataset):
    classes = range(10)  # else many samples are read to learn how many there are

    def __len__(self):
        return 4096

    def __getitem__(self, index):
        {make}
        return torch.full((3, 32, 32), index % 10 / 10), index % 10

def data():
    return Slow()

class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.layer = nn.Linear(3, classes)

    def forward(self, x):
        time.sleep({compute_s})
        return self.layer(x.mean(dim=(2, 3)))

def net(classes):
    return Net(classes)
"""
SLEEPS = """now, before = time.monotonic(), getattr(self, "until", 0.0)
        # From the end of the sample before, so that what else a sample costs is in its time.
        self.until = before + {sample_s} if now - before < {sample_s} else now + {sample_s}
        time.sleep(max(0.0, self.until - now))"""
COMPUTES = "end = time.process_time() + {sample_s}\n        while time.process_time() < end: pass"


def planted(folder: Path, make: str, sample_s: float) -> dict[str, Any]:
    folder.mkdir(parents=True)
    file = folder / "planted.py"
    file.write_text(PLANTED.format(make=make.format(sample_s=sample_s), compute_s=COMPUTE_S))
    return {"model": f"{file}:net", "data": f"{file}:data", "batch_size": BATCH}


class Ready(Dataset[tuple[torch.Tensor, int]]):
    """Samples as the planted ones, made in no time."""

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((3, 32, 32), index % 10 / 10), index % 10


class Sleeps(nn.Module):
    """The planted model, in a loop of torch alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(COMPUTE_S)
        return self.layer(x.mean(dim=(2, 3)))  # type: ignore[no-any-return]


def plain_loop(workers: int) -> tuple[float, float]:
    """Of a loop of torch alone, whose batches lie ready: the wait for one, and the rest of a step (s, means of ten)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # as many as it was told, on two cores
        batches = iter(DataLoader(Ready(), batch_size=BATCH, num_workers=workers))
    model = Sleeps()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times_s: list[tuple[float, float]] = []
    for _ in range(12):
        begun = time.perf_counter()
        images, labels = next(batches)
        ready = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        times_s.append((ready - begun, time.perf_counter() - ready))
    wait_s, rest_s = np.mean(times_s[2:], axis=0)  # the first waits for the processes to start
    return float(wait_s), float(rest_s)


class Found(NamedTuple):
    """Means per step, in seconds."""

    step_s: float
    wait_s: float
    rest_s: float
    """Step − wait, as worldsize has it."""
    plain_wait_s: float
    """For a batch that lies ready, in a loop of torch alone right after."""
    plain_rest_s: float
    """What that loop takes beside its wait: the planted time, and what torch takes for a step of this model."""

    def true_s(self, interval_s: float) -> float:
        """The step: the longer one of what it takes with a batch that lies ready, and the time of making one."""
        # The rest is that of the same steps, so that what a neighbour takes of the machine is on both sides.
        return max(self.rest_s + self.plain_wait_s, interval_s)


def stand_still(seconds: float) -> None:
    """What the agent of a rank does between two turns (launch/workers.py), to all but this process."""
    children = active_children()
    for child in children:
        os.kill(child.pid or 0, signal.SIGSTOP)
    time.sleep(seconds)
    for child in children:
        os.kill(child.pid or 0, signal.SIGCONT)


def in_turns(folder: Path, make: str, workers: int, interval_s: float) -> Found:
    """A rank that takes turns with others, whose W processes make a batch per `interval_s`."""
    settings = tiny_settings(
        folder.parent, **planted(folder, make, interval_s * workers / BATCH), loader_workers=workers
    )
    trainer, data = alone(settings)
    place = folder / "cell"
    with Recorder(place, 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        loop.take(Turn(op="steps", count=max(2, workers), timed=False))
        times: list[float] = []
        count = math.ceil(8 / workers) * workers  # whole bursts
        for block in range(BLOCKS):
            stand_still(PAUSE_S)
            times += loop.take(Turn(op="steps", count=count, warmup=workers, block=block, anew=block == 0)).step_s
        loop.close()
    del loop, trainer
    gc.collect()
    steps = with_parts(Cell(place, CellRecord.of(settings, id="cell"))).filter("timed").collect()
    wait_s, step_s = (float(steps[name].to_numpy().mean()) for name in ("data_wait_s", "step_s"))
    return Found(float(np.mean(times)), wait_s, step_s - wait_s, *plain_loop(workers))


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("share", [0.25, 0.8, 1.25, 2.0])
def test_a_loader_that_waits_for_its_source(
    tmp_path_factory: pytest.TempPathFactory, workers: int, share: float
) -> None:
    """Its rate is this share of the rate at which the model computes."""
    interval_s = COMPUTE_S / share

    def holds(found: Found) -> None:
        assert found.plain_rest_s >= COMPUTE_S, "no sleep ends early"
        assert COMPUTE_S <= found.rest_s <= (1 + REST) * found.plain_rest_s
        true_s = found.true_s(interval_s)
        assert found.step_s == pytest.approx(true_s, rel=0.05)
        assert found.wait_s == pytest.approx(true_s - found.rest_s, abs=0.05 * true_s)

    Repeated(lambda: in_turns(tmp_path_factory.mktemp("sleeps") / "planted", SLEEPS, workers, interval_s)).check(holds)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_loader_that_computes(tmp_path_factory: pytest.TempPathFactory, workers: int, share: float) -> None:
    """On cores of its own: the model sleeps."""
    interval_s = COMPUTE_S / share

    def holds(found: Found) -> None:
        # Two that compute and the rank share two cores, so the rest of a step is longer than in a loop alone.
        assert found.step_s == pytest.approx(found.true_s(interval_s), rel=0.05 if workers == 1 else 0.1)

    Repeated(lambda: in_turns(tmp_path_factory.mktemp("computes") / "planted", COMPUTES, workers, interval_s)).check(
        holds
    )


@pytest.mark.parametrize(("share", "bound"), [(0.6, True), (1.6, False)])
def test_the_advice_says_which_it_is(tmp_path: Path, share: float, bound: bool) -> None:
    """Two cells in turns: while one is timed, the other's loader has nothing to do."""
    settings = planted(tmp_path / "planted", SLEEPS, 2 * COMPUTE_S / share / BATCH)
    del settings["batch_size"]

    def measure() -> StudyAnalysis:
        run = worldsize.study(
            out=tmp_path / f"run{len(list(tmp_path.iterdir()))}",
            **settings,
            strategies=("single", "ddp"),
            world_sizes=(1,),
            batch_sizes=(BATCH,),
            loader_workers=2,
            steps=20,
            block_steps=4,
            target_interval=0,
        )
        return analyse(run)

    def holds(analysis: StudyAnalysis) -> None:
        true_s = max(COMPUTE_S, COMPUTE_S / share)
        for cell in analysis.cells:
            assert cell.summary is not None
            assert cell.summary.step_s.value == pytest.approx(true_s, rel=0.1 if bound else 0.25)
        assert ("input-bound" in {each.code for each in advise(analysis)}) is bound

    Repeated(measure).check(holds)


OWN = """
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        {make}
        return torch.ones(8)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)

    def forward(self, x):
        time.sleep({compute_s})
        return self.layer(x)

class Mine:
    def model(self):
        return Net()

    def batches(self, rank, world_size, local_batch):
        return DataLoader(Slow(), local_batch, num_workers=2)

    def loss(self, model, batch):
        return model(batch).square().mean()
"""


def test_a_loader_of_a_workload_stands_still_as_well(tmp_path: Path) -> None:
    """Two processes of its own make a batch each in 160 ms, one each 80; computing takes 50, so 30 are waited for."""
    (tmp_path / "own.py").write_text(OWN.format(make=SLEEPS.format(sample_s=0.16 / BATCH), compute_s=0.05))

    def measure() -> list[tuple[float, float]]:
        out = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        worldsize.study(
            out=out,
            workload=f"{tmp_path / 'own.py'}:Mine",
            strategies=("single", "ddp"),
            world_sizes=(1,),
            batch_sizes=(BATCH,),
            steps=24,
            target_interval=0,
        )
        return [
            (
                float(np.mean(world_steps(cell)["step_s"].to_numpy())),
                with_parts(cell).filter("timed").select("data_wait_s").mean().collect().item(),
            )
            for cell in load_run(out).cells.values()
        ]

    def holds(found: list[tuple[float, float]]) -> None:
        assert len(found) == 2
        for step_s, wait_s in found:
            assert step_s == pytest.approx(0.08, rel=0.05)
            assert wait_s == pytest.approx(0.03, abs=0.05 * 0.08)

    Repeated(measure).check(holds)
