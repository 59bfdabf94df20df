"""Replayed computing in one process: gradients come in their order, nothing is computed, and each wait is counted."""

import platform
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from replayable import BACKWARD_S, COMPUTED_S, OPTIMIZER_S, SHARES, SIZES, cell_settings, replayable
from worldsize.analysis.replay import replay_of, wanted
from worldsize.config import CellSettings, ReplaySettings
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline, read
from worldsize.results.folder import load_run
from worldsize.results.training_records import ReplayedTimes
from worldsize.strategies import Channel, World
from worldsize.training.replay import SLICE_NS, WAKING_S, ReplayModel, ReplayTask, Waits, groups_of
from worldsize.training.trainer import Trainer

REPLAY = ReplaySettings(
    run="made", parameters=112_000, parameter_bytes=448_000, buffer_bytes=38_720, gradient_tensors=4
)


@pytest.fixture
def trainer(tmp_path: Path) -> Trainer:
    run = load_run(replayable(tmp_path))
    settings: CellSettings = cell_settings(replay=REPLAY)
    task = ReplayTask(settings, replay_of(run, wanted(run, None, None, 2)))
    timeline = Timeline(HostClock())
    return Trainer(settings, task, World(Channel(0, 1, timeline), 1, torch.device("cpu")), timeline)


def test_a_step_takes_what_was_measured_and_no_less(trainer: Trainer) -> None:
    task = trainer.task
    assert isinstance(task, ReplayTask)
    began_s = time.perf_counter()
    for number in range(3):
        result = trainer.step()
        # From the first: a late end makes the step after it shorter, never the sum.
        assert time.perf_counter() - began_s >= (number + 1) * COMPUTED_S - 0.002
        assert (result.loss, result.right) == (None, None)
        marks = read(trainer.timeline.take(), trainer.timeline.clock)
        assert marks.last_gradient is not None
    taken = task.waits.taken()
    assert taken.intended_s == pytest.approx(3 * COMPUTED_S, rel=1e-3)
    assert taken.waited_s >= taken.intended_s - 0.003
    assert task.waits.taken() == ReplayedTimes()


def test_gradients_come_in_their_order_at_their_times_and_nothing_is_copied(trainer: Trainer) -> None:
    model = trainer.strategy.unwrap()
    assert isinstance(model, ReplayModel)
    assert [weight.numel() * 4 for weight in model.weights] == list(SIZES)
    seen: list[tuple[int, float]] = []
    for number, weight in enumerate(model.weights):
        weight.register_post_accumulate_grad_hook(lambda p, number=number: seen.append((number, time.perf_counter())))
    batch = next(iter(trainer.batches.epoch(0)))
    began_s = time.perf_counter()
    model(batch).backward()
    assert [number for number, _ in seen] == sorted(range(len(SHARES)), key=lambda number: SHARES[number])
    at_s = dict(seen)
    # From the start: a host that is late with one gradient makes the time to the next shorter, never this one.
    for number, share in enumerate(SHARES):
        assert at_s[number] - began_s >= share * BACKWARD_S - 0.001
    for weight, gradient in zip(model.weights, model.gradients, strict=True):
        assert weight.grad is not None
        assert weight.grad.data_ptr() == gradient.data_ptr()
    assert sum(p.numel() * 4 for p in model.buffers()) == REPLAY.buffer_bytes


def test_gradients_that_come_almost_together_are_released_together() -> None:
    found = groups_of((1.0, 0.9995, 0.5, 0.4, 0.4011))
    assert [group.numbers for group in found] == [(3, 4), (2,), (1, 0)]
    assert [group.share for group in found] == [0.4011, 0.5, 1.0]


def test_late_ends_do_not_add_up_and_bookkeeping_is_not_made_up_for() -> None:
    waits = Waits()
    waits.begin()
    began_s = waits.due_s
    for _ in range(10):
        time.sleep(0.002)  # bookkeeping
        waits.go_on()
        waits.wait(0.002)
    assert waits.due_s >= began_s + 0.040 - 1e-6
    taken = waits.taken()
    assert taken.intended_s == pytest.approx(0.020)
    assert taken.waited_s <= time.perf_counter() - began_s - 0.020
    assert taken.waited_s >= 0.020 - 0.001


def test_what_is_real_is_no_wait() -> None:
    waits = Waits()
    waits.begin()
    time.sleep(0.02)  # a message
    waits.begin()
    waits.wait(0.005)
    taken = waits.taken()
    assert taken.intended_s == pytest.approx(0.005)
    assert taken.waited_s >= 0.005


class Sleeper:
    """A clock that only sleeping moves, and a kernel that wakes whoever sleeps so much too late."""

    def __init__(self, late_s: float) -> None:
        self.now_s, self.late_s = 0.0, late_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + self.late_s

    def perf_counter(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("late_s", "expected_s"), [(0.0001, 0.0), (0.005, 0.005 - WAKING_S)])
def test_what_waking_usually_takes_is_asked_for_earlier_and_a_busy_core_is_not(
    late_s: float, expected_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeper = Sleeper(late_s)
    monkeypatch.setattr("worldsize.training.replay.time", sleeper)
    waits = Waits()
    for _ in range(100):
        waits.begin()
        waits.wait(0.01)
    waits.taken()
    for _ in range(50):
        waits.begin()
        waits.wait(0.01)
    taken = waits.taken()
    assert taken.waited_s - taken.intended_s == pytest.approx(50 * expected_s, abs=50 * 1e-6)


def test_what_the_optimizer_clears_is_a_part_of_its_wait(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer.step()
    clear = torch.optim.Optimizer.zero_grad

    def slow(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        time.sleep(OPTIMIZER_S / 2)
        clear(optimizer, set_to_none)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", slow)
    assert isinstance(trainer.task, ReplayTask)
    waits = trainer.task.waits
    asked: list[float] = []
    until = waits.until

    def noted(due_s: float) -> None:
        asked.append(due_s - time.perf_counter())
        until(due_s)

    monkeypatch.setattr(waits, "until", noted)
    trainer.step()
    assert asked[-1] <= OPTIMIZER_S / 2  # the last of a step's waits is that of the optimizer


ASKED = """
from pathlib import Path
from worldsize.training import replay
told = Path("/proc/self/sched")
for slice_ns in (2 * replay.SLICE_NS, replay.SLICE_NS):
    replay.SLICE_NS = slice_ns
    replay._wake_in_time()
    for line in told.read_text().splitlines() if told.exists() else ():
        if "se.slice" in line:
            print(int(line.split(":")[1]))
"""


def test_a_rank_that_waits_asks_for_a_short_slice() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], check=True, capture_output=True, text=True)
    linux = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
    if not done.stdout or linux < (6, 12):
        pytest.skip("Linux tells no slice here, or gives none that is asked for")
    assert [int(line) for line in done.stdout.split()] == [2 * SLICE_NS, SLICE_NS]


def test_waiting_takes_no_core(trainer: Trainer) -> None:
    began_s = time.thread_time()
    for _ in range(5):
        trainer.step()
    assert time.thread_time() - began_s < 0.5 * 5 * COMPUTED_S
