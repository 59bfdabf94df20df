"""The loop runs work that knows nothing of images, losses or epochs of a data set: what it needs is the protocol."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from worldsize.config import CellSettings
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Phase, Timeline
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Reply, Turn
from worldsize.ranks.workload import Workload
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord

SLEEP_S = 0.02


class Alone(NamedTuple):
    """One process that is its own group."""

    world_size: int = 1
    device: torch.device = torch.device("cpu")
    cores: tuple[tuple[int, ...], ...] = ()

    @property
    def channel(self) -> "Alone":
        return self


class Slept(NamedTuple):
    epoch: int
    samples: int
    loss: None = None
    right: None = None


class Sleeper:
    """Work that sleeps: half of each step waits for its input, half computes."""

    def __init__(self) -> None:
        self.world = Alone()
        self.timeline = Timeline(HostClock())
        self.steps, self.steps_per_epoch, self.saves = 0, 3, False
        self.asked: list[str] = []
        self.closed = False

    def step(self, *, synchronise: bool = True) -> Slept:
        self.timeline.begin()
        time.sleep(SLEEP_S / 2)
        for phase in Phase:
            if phase is Phase.FORWARD:
                time.sleep(SLEEP_S / 2)
            self.timeline.end(phase)
        self.steps += 1
        return Slept(epoch=self.steps // self.steps_per_epoch, samples=5)

    def awake(self, turn: Turn) -> nullcontext[None]:
        return nullcontext()

    @contextmanager
    def aside(self) -> Iterator[None]:
        before = self.steps
        yield
        self.steps = before

    @contextmanager
    def unseen(self) -> Iterator[None]:
        self.timeline.watching = False
        yield
        self.timeline.watching = True

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        self.asked.append(turn.op)
        return Reply()

    def memory(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True


def test_steps_of_any_work_are_timed_recorded_and_undone(tmp_path: Path) -> None:
    work = Sleeper()
    as_workload: Workload = work
    with Recorder(tmp_path, 0, work.timeline.clock) as recorder:
        loop = Loop(as_workload, recorder, session=2)
        timed = loop.take(Turn(op="steps", count=4, block=1)).step_s
        aside = loop.take(Turn(op="steps", count=2, block=1, synchronise=False)).step_s
        bare = loop.take(Turn(op="steps", count=2, block=1, observe=False)).step_s
        epoch = loop.take(Turn(op="epoch", block=2)).step_s
        loop.take(Turn(op="evaluate"))
        loop.close()
    assert [len(times) for times in (timed, aside, bare, epoch)] == [4, 2, 2, 3]
    assert min((*timed, *aside, *bare, *epoch)) >= SLEEP_S
    assert work.steps == 7, "what only measures leaves no step behind"
    assert (work.asked, work.closed) == (["evaluate"], True)

    record = CellRecord(id="x", settings=CellSettings(), state="complete")
    steps = Cell(tmp_path, record).steps
    assert steps["session"].unique().to_list() == [2]
    assert steps["samples"].unique().to_list() == [5]
    assert steps["loss"].is_null().all()
    assert steps["accuracy"].is_null().all()
    assert steps["data_wait_s"].min() == pytest.approx(SLEEP_S / 2, rel=0.5)
    assert steps["forward_s"].min() == pytest.approx(SLEEP_S / 2, rel=0.5)
