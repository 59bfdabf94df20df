"""A loop that waits for its loader is seen to, whatever other cells do in between (method.md §8).

Planted: a model that computes for a known time, and W loader processes that make a batch each in a known time. A step
is the longer of the two, and waits for the difference. A batch that lies ready is not free either: a process hands it
over, which took 2 ms of a step of 68 on two idle cores, and 4 of 75 where others computed. What that costs is taken
beside each measurement, from a plain torch loop.
"""

import gc
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import worldsize
from repeated import Repeated
from tiny import alone, tiny_settings
from worldsize.analysis.advice import advise
from worldsize.analysis.parts import with_parts
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.measure.clocks import HostClock
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Turn
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord
from worldsize.study.blocks import block_warmup, whole_bursts
from worldsize.training.workload import TrainingWorkload

pytestmark = [pytest.mark.quiet, pytest.mark.usefixtures("clean_imports")]

BATCH, COMPUTE_S, BLOCKS, PAUSE_S = 8, 0.06, 2, 0.4
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


def handing_over_s(workers: int) -> float:
    """What a loop of torch alone waits for a batch that lies ready (mean of ten)."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")  # as many as it was told, on two cores
        batches = iter(DataLoader(Ready(), batch_size=BATCH, num_workers=workers))
    waits_s = []
    for _ in range(12):
        time.sleep(COMPUTE_S)
        begun = time.perf_counter()
        next(batches)
        waits_s.append(time.perf_counter() - begun)
    return float(np.mean(waits_s[2:]))  # the first waits for the processes to start


def in_turns(folder: Path, make: str, workers: int, interval_s: float) -> tuple[float, float, float, float]:
    """Of a rank that takes turns with others: its mean step, data wait, the rest of a step, and a handing over (s).

    W processes make a batch per `interval_s`. The rest is a bit more than the model sleeps.
    """
    settings = tiny_settings(
        folder.parent, **planted(folder, make, interval_s * workers / BATCH), loader_workers=workers
    )
    trainer, data = alone(settings)
    place = folder / "cell"
    with Recorder(place, 0, HostClock()) as recorder:
        loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
        loop.take(Turn(op="steps", count=max(2, workers), timed=False))
        times: list[float] = []
        for block in range(BLOCKS):
            time.sleep(PAUSE_S)
            count = whole_bursts(settings, 8)
            times += loop.take(Turn(op="steps", count=count, warmup=block_warmup(settings), block=block)).step_s
        loop.close()
    del loop, trainer
    gc.collect()
    steps = with_parts(Cell(place, CellRecord.of(settings, id="cell"))).filter("timed").collect()
    wait_s, step_s = (float(steps[name].to_numpy().mean()) for name in ("data_wait_s", "step_s"))
    return float(np.mean(times)), wait_s, step_s - wait_s, handing_over_s(workers)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("share", [0.25, 0.8, 1.25, 2.0])
def test_a_loader_that_waits_for_its_source(
    tmp_path_factory: pytest.TempPathFactory, workers: int, share: float
) -> None:
    """Its rate is this share of the rate at which the model computes."""
    interval_s = COMPUTE_S / share

    def holds(found: tuple[float, float, float, float]) -> None:
        step_s, wait_s, compute_s, ready_s = found
        assert compute_s == pytest.approx(COMPUTE_S, rel=0.3)
        true_s = max(compute_s + ready_s, interval_s)
        assert step_s == pytest.approx(true_s, rel=0.05)
        assert wait_s == pytest.approx(true_s - compute_s, abs=0.05 * true_s)

    Repeated(lambda: in_turns(tmp_path_factory.mktemp("sleeps") / "planted", SLEEPS, workers, interval_s)).check(holds)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("share", [0.5, 2.0])
def test_a_loader_that_computes(tmp_path_factory: pytest.TempPathFactory, workers: int, share: float) -> None:
    """On cores of its own: the model sleeps."""
    interval_s = COMPUTE_S / share

    def holds(found: tuple[float, float, float, float]) -> None:
        step_s, _, compute_s, ready_s = found
        # Two that compute and the rank share two cores.
        assert step_s == pytest.approx(max(compute_s + ready_s, interval_s), rel=0.05 if workers == 1 else 0.1)

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
            baseline="single",
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
