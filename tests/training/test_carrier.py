"""Batches and losses travel while the host goes on; on a device that works later, each is that of its own step."""

import json
import time
from pathlib import Path

import pytest
import torch
from torch import Tensor

from later import HostWaitedError, LaterDevice, later_device
from tiny import alone, tiny_settings
from worldsize.measure.alignment import Offset
from worldsize.measure.clocks import DeviceClock
from worldsize.measure.timeline import Phase, Timeline
from worldsize.ranks.loop import Loop
from worldsize.ranks.recorder import Pending, Recorder
from worldsize.ranks.turns import Turn
from worldsize.training import carrier
from worldsize.training.carrier import DEPTH, AtHand, Prefetcher, brought, carrier_for
from worldsize.training.workload import TrainingWorkload

pytestmark = pytest.mark.usefixtures("clean_imports")


def test_on_a_cpu_nothing_is_copied() -> None:
    here = carrier_for(torch.device("cpu"))
    assert isinstance(here, AtHand)
    batch = torch.ones(2), torch.zeros(2)
    assert all(a is b for a, b in zip(here.bring(*batch), batch, strict=True))
    assert all(a is b for a, b in zip(here.fetch(*batch), batch, strict=True))


def test_a_batch_of_any_structure_travels_and_nothing_is_converted() -> None:
    given = torch.arange(6).view(2, 3)
    batch = {"tokens": given, "more": (torch.ones(2, dtype=torch.float64), "as it is", None)}
    with later_device() as device:
        there = brought(Prefetcher(device), batch)
        device.synchronize()
    tokens, (ones, *others) = there["tokens"], there["more"]
    assert torch.equal(tokens, given)
    assert (tokens.dtype, ones.dtype, others) == (torch.int64, torch.float64, ["as it is", None])
    assert tokens is not given
    assert brought(AtHand(), batch) is batch


class Training:
    """Steps on the later device: each reads its batch twice, at its start and at its end, and overwrites one loss."""

    def __init__(self, device: LaterDevice) -> None:
        self.device = device
        self.carrier = Prefetcher(device)
        self.loss = torch.zeros(())
        self.seen: list[tuple[float, float]] = []
        self.loaded = torch.empty(4, 3)

    def step(self, number: int) -> Tensor:
        self.loaded.fill_(number)  # a loader that makes each batch where the one before it was
        inputs, labels = self.carrier.bring(self.loaded, torch.full((4,), number))
        self.device.later(lambda: time.sleep(0.001))  # what is copied too early is there before it is read
        first: list[float] = []
        self.device.later(lambda: first.append(float(inputs.sum()) / 12))
        self.device.later(lambda: self.loss.fill_(number))
        self.device.later(lambda: self.seen.append((first[0], float(labels.sum()) / 4)))
        self.carrier.used()
        [loss] = self.carrier.fetch(self.loss)
        return loss


def test_no_batch_is_overwritten_while_a_step_reads_it() -> None:
    with later_device() as device:
        training = Training(device)
        for number in range(200):
            training.step(number)
        device.synchronize()
    assert training.seen == [(number, number) for number in range(200)]


def test_batches_that_are_used_without_a_word_are_not_overwritten_either() -> None:
    with later_device() as device:
        training = Training(device)
        training.carrier.used = lambda: None  # type: ignore[method-assign]
        for number in range(50):
            training.step(number)
        device.synchronize()
    assert training.seen == [(number, number) for number in range(50)]


def test_batches_of_another_shape_get_room_of_their_own() -> None:
    with later_device() as device:
        carrier = Prefetcher(device)
        for size in (4, 4, 7, 2, 7):
            [there] = carrier.bring(torch.arange(size))
            device.synchronize()
            assert there.tolist() == list(range(size))


def test_pinned_memory_is_asked_for_once() -> None:
    """Also for a batch that is cut out of a larger tensor, whose strides no memory of its own would have."""
    with later_device() as device:
        carrier = Prefetcher(device)
        large = torch.arange(40).reshape(5, 8)
        for first in range(4):
            [there] = carrier.bring(large[:, first : first + 3])
            device.synchronize()
            assert torch.equal(there, large[:, first : first + 3])
    assert device.asked == DEPTH


def test_the_host_is_ahead_of_a_held_device_until_a_batch_would_be_overwritten() -> None:
    with later_device(start_held=True) as device:
        training = Training(device)
        for number in range(DEPTH):
            training.step(number)
        with pytest.raises(HostWaitedError):
            training.step(DEPTH)


def test_the_loss_is_that_of_its_own_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device overwrites one number in each step, and is asked for it long after; pieces of pinned memory change."""
    monkeypatch.setattr(carrier, "ROWS", 7)
    with later_device() as device:
        clock = DeviceClock(device)
        timeline, training = Timeline(clock), Training(device)
        with Recorder(tmp_path, 0, clock, every_s=60) as recorder:
            for number in range(60):
                timeline.begin()
                loss = training.step(number)
                for phase in Phase:
                    timeline.end(phase)
                recorder.add(Pending(timeline.take(), loss, 0, 0, number, 0, True, 4))
            recorder.flush()
    rows = [json.loads(line) for line in (tmp_path / "rank0.jsonl").read_text().splitlines()]
    assert [(row["step"], row["loss"]) for row in rows] == [(number, number) for number in range(60)]


def test_a_rank_on_a_device_records_without_ever_waiting_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trainer, loop and recorder on a device that is held: all but the end of the turn go on."""
    settings = tiny_settings(tmp_path)
    plain, _ = alone(settings)
    wanted = [float(plain.step().loss) for _ in range(6)]
    with later_device() as device:
        monkeypatch.setattr(carrier, "accelerator_for", lambda _: device)
        trainer, data = alone(settings, DeviceClock(device))
        with Recorder(tmp_path / "cell", 0, trainer.timeline.clock, every_s=0) as recorder:
            loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
            monkeypatch.setattr(trainer, "carrier", Roomy(device))
            flush = recorder.flush

            def flushed(*end: object) -> object:
                assert not (tmp_path / "cell" / "rank0.jsonl").read_bytes(), "nothing can have been read yet"
                device.let_go()
                return flush(*end)  # type: ignore[arg-type]

            monkeypatch.setattr(recorder, "flush", flushed)
            monkeypatch.setattr(trainer.timeline.clock, "rebase", device.hold)
            monkeypatch.setattr(loop, "_align", lambda *_: Offset())
            times = loop.take(Turn(op="steps", count=6)).step_s
    rows = [json.loads(line) for line in (tmp_path / "cell" / "rank0.jsonl").read_text().splitlines()]
    assert [row["loss"] for row in rows] == pytest.approx(wanted)
    assert [row["accuracy"] is not None for row in rows] == [True] * 6
    assert len(times) == 6


class Roomy(Prefetcher):
    """Batches are where they are used, as a model of the host needs them; results travel later."""

    def bring(self, *batch: Tensor) -> tuple[Tensor, ...]:
        return batch

    def used(self) -> None:
        pass


def test_steps_without_instruments_are_read_when_all_have_been_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read each at its end would keep host and device in step, and the overhead of that would not be seen."""
    with later_device() as device:
        trainer, data = alone(tiny_settings(tmp_path), DeviceClock(device))
        with Recorder(tmp_path / "cell", 0, trainer.timeline.clock) as recorder:
            loop = Loop(TrainingWorkload(trainer, data, recorder.folder), recorder, session=0)
            steps = 0
            step = trainer.step

            def held(*, synchronise: bool) -> object:
                nonlocal steps
                steps += 1
                device.hold()
                result = step(synchronise=synchronise)
                if steps == 5:
                    device.let_go()
                return result

            monkeypatch.setattr(trainer, "step", held)
            times = loop.take(Turn(op="steps", count=5, observe=False)).step_s
    assert len(times) == 5
    assert all(time_s > 0 for time_s in times)
    assert not (tmp_path / "cell" / "rank0.jsonl").read_bytes()
