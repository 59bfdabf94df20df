"""The loop runs work that knows nothing of images, losses or epochs of a data set: what it needs is the protocol."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from worldsize.analysis.parts import with_parts
from worldsize.config import CellSettings
from worldsize.errors import OutputError
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Phase, Timeline
from worldsize.ranks.checkpoint import agreed_checkpoint, restore
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Recorder
from worldsize.ranks.turns import Reply, Turn
from worldsize.ranks.workload import MisfitError, State, Workload
from worldsize.results.checkpoints import check_parts, checkpoint_folder
from worldsize.results.folder import Cell
from worldsize.results.records import CellRecord

SLEEP_S = 0.02


class Alone(NamedTuple):
    """One process that is its own group."""

    rank: int = 0
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
    interrupted: bool = False


class Sleeper:
    """Work that sleeps: half of each step waits for its input, half computes."""

    def __init__(self) -> None:
        self.world = Alone()
        self.timeline = Timeline(HostClock())
        self.steps, self.steps_per_epoch, self.saves = 0, 3, False
        self.asked: list[str] = []
        self.closed = False
        self.slept_s = torch.zeros(1, dtype=torch.float64)
        self.naps = ["none"]

    def step(self, *, synchronise: bool = True) -> Slept:
        self.timeline.begin()
        time.sleep(SLEEP_S / 2)
        for phase in Phase:
            if phase is Phase.FORWARD:
                time.sleep(SLEEP_S / 2)
            self.timeline.end(phase)
        self.steps += 1
        self.slept_s += SLEEP_S
        self.naps.append(f"nap {self.steps}")
        return Slept(epoch=self.steps // self.steps_per_epoch, samples=5)

    def begin_data_anew(self) -> None:
        pass

    @contextmanager
    def rolled_back(self) -> Iterator[None]:
        before = self.steps
        yield
        self.steps = before

    @contextmanager
    def uninstrumented(self) -> Iterator[None]:
        self.timeline.watching = False
        yield
        self.timeline.watching = True

    def other(self, turn: Turn, align: Callable[[], Offset]) -> Reply:
        self.asked.append(turn.op)
        return Reply()

    def state(self) -> State:
        return State(self.steps, {"slept": {"s": self.slept_s}}, {"naps": self.naps}, replicated=(self.slept_s,))

    def restore(self, state: State) -> None:
        if state.common["slept"]["s"].shape != self.slept_s.shape:
            raise MisfitError("slept", "it slept in another way")
        self.steps, self.naps = state.steps, state.own["naps"]
        self.slept_s.copy_(state.common["slept"]["s"])

    def gradients(self) -> None:
        return None

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
        rolled_back = loop.take(Turn(op="steps", count=2, block=1, synchronise=False)).step_s
        bare = loop.take(Turn(op="steps", count=2, block=1, observe=False)).step_s
        epoch = loop.take(Turn(op="epoch", block=2)).step_s
        loop.take(Turn(op="evaluate"))
        loop.close()
    assert [len(times) for times in (timed, rolled_back, bare, epoch)] == [4, 2, 2, 3]
    assert min((*timed, *rolled_back, *bare, *epoch)) >= SLEEP_S
    assert work.steps == 7, "what only measures leaves no step behind"
    assert (work.asked, work.closed) == (["evaluate"], True)

    record = CellRecord.of(CellSettings(), id="x", state="complete")
    steps = with_parts(Cell(tmp_path, record)).collect()
    assert steps["session"].unique().to_list() == [2]
    assert steps["samples"].unique().to_list() == [5]
    assert steps["loss"].is_null().all()
    assert steps["accuracy"].is_null().all()
    assert steps["data_wait_s"].min() == pytest.approx(SLEEP_S / 2, rel=0.5)
    assert steps["forward_s"].min() == pytest.approx(SLEEP_S / 2, rel=0.5)


def test_any_work_is_saved_and_goes_on_where_it_was(tmp_path: Path) -> None:
    first, second, other = Sleeper(), Sleeper(), Sleeper()
    with Recorder(tmp_path, 0, first.timeline.clock) as recorder:
        loop = Loop(first, recorder, session=0)
        loop.take(Turn(op="checkpoint"))
        folder = checkpoint_folder(tmp_path)
        assert not folder.exists(), "before the first step there is nothing to save"
        loop.take(Turn(op="steps", count=4))
        loop.take(Turn(op="checkpoint"))
    assert first.asked == [], "saving is the loop's"

    record = agreed_checkpoint(folder, 0, 1)
    assert record is not None
    assert (record.step, record.epoch, record.epoch_step, record.settings) == (4, 1, 1, None)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.json", "rank0-4.pt", "slept-4.pt"]
    check_parts(folder, record.parts)
    restore(second, folder, record)
    assert (second.steps, second.naps, second.slept_s) == (4, first.naps, first.slept_s)

    other.slept_s = torch.zeros(2)
    with pytest.raises(OutputError, match=r"cannot go on from .*slept-4.pt: it slept in another way\nRemove "):
        restore(other, folder, record)
