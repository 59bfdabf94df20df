"""Replayed computing as a task (task.py): ranks wait as long as was measured, and gradients come at their times.

Only the waits stand for something. Gradients have their sizes, come in their order and are released by autograd, so
each strategy hooks into backward, fills its buckets and sends them as it does in training (method.md §15). A rank that
waits leaves its core to others: two cores carry many ranks.
"""

import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.results.replay import Replay
from worldsize.results.training_records import ReplayedTimes
from worldsize.strategies import sizes_of
from worldsize.training.draws import Drawn, Draws
from worldsize.wire import Sizes

TOGETHER = 0.002
"""Gradients that are ready within this share of backward are released at once: a wait for each would cost more."""
MADE_UP_S = 0.001
"""Lateness that the next wait makes up for, at most: that of waking up, about 0.1 ms, but not that of a busy core."""
WAKING_S, LEARNT = 0.0002, 0.1
"""What waking up takes at most where no other wants the core, and how much each one counts towards what is usual."""
DTYPES = {2: torch.bfloat16, 8: torch.float64}
"""Bytes of an element → what gradients are summed in; 4 bytes are float32."""
PR_SET_TIMERSLACK = 29
SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Number of a system call that C libraries have only of late."""
SCHED_ATTR = "=IIQiIQQQ"
"""Its argument: size, policy, flags, nice value, priority, and, of a policy without deadlines, the slice."""
SLICE_NS = 100_000
"""The shortest that may be asked for."""


class Waits:
    """Waits that add up to what was intended, and how long they took.

    Each has an absolute end, counted from that of the one before it, so that late wake-ups do not add up; and each
    asks to be woken earlier than that by what waking usually takes.
    """

    def __init__(self) -> None:
        self.intended_s = self.waited_s = 0.0
        self._due_s = self._from_s = time.perf_counter()
        self._late_s = self._waking_s = 0.0

    def begin(self) -> None:
        """Something real has ended just now: the next wait begins here."""
        self._due_s = self._from_s = time.perf_counter()

    def go_on(self) -> None:
        """Only bookkeeping was done since the last wait: the next one makes up for the late end of that one."""
        self._from_s = time.perf_counter()
        self._due_s = self._from_s - self._late_s

    def wait(self, seconds: float) -> None:
        """Wait without spinning; the time is counted."""
        self.until(self._due_s + seconds)
        self.intended_s += seconds

    def until(self, due_s: float) -> None:
        """Wait until a moment on the clock of time.perf_counter."""
        asked_s = due_s - self._waking_s
        left_s = asked_s - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)
        now_s = time.perf_counter()
        if left_s > 0:
            self._waking_s += LEARNT * (min(now_s - asked_s, WAKING_S) - self._waking_s)
        self.waited_s, self._from_s = self.waited_s + now_s - self._from_s, now_s
        self._late_s = min(now_s - due_s, MADE_UP_S)
        self._due_s = now_s - self._late_s

    @property
    def due_s(self) -> float:
        """When the last wait was to end; at most WAKING_S after it did."""
        return self._due_s

    def taken(self) -> ReplayedTimes:
        """Intended and waited seconds since this was asked last."""
        found = ReplayedTimes(intended_s=self.intended_s, waited_s=self.waited_s)
        self.intended_s = self.waited_s = 0.0
        return found


class Group(NamedTuple):
    """Gradients that are released together."""

    share: float
    """When, as a share of backward."""
    numbers: tuple[int, ...]
    """Which parameters, in the model's order."""


def groups_of(ready_share: Sequence[float]) -> list[Group]:
    """All gradients in the order in which backward has them; those of a group come with its last one."""
    found: list[list[int]] = []
    for number in sorted(range(len(ready_share)), key=lambda number: ready_share[number]):
        if found and ready_share[number] - ready_share[found[-1][0]] <= TOGETHER:
            found[-1].append(number)
        else:
            found.append([number])
    return [Group(ready_share[group[-1]], tuple(group)) for group in found]


class _Release(torch.autograd.Function):
    """A link of the chain that backward goes along: it waits, then hands out the gradients of one group."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, model: "ReplayModel", group: Group, *parameters: Tensor) -> Tensor:
        ctx.model, ctx.group = model, group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ctx.model.reach(ctx.group.share)
        # A tensor of its own for the same memory: autograd takes it over as it is, and nothing is copied.
        ready = (ctx.model.gradients[number].detach() for number in ctx.group.numbers)
        return (gradients[0], None, None, *ready)


class ReplayModel(nn.Module):
    """A parameter for each gradient that was recorded, and all buffers as one."""

    def __init__(self, replay: Replay, waits: Waits) -> None:
        super().__init__()
        dtype = DTYPES.get(replay.element_bytes, torch.float32)
        counts = [max(1, size // dtype.itemsize) for size in replay.sizes_bytes]
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(count, dtype=dtype)) for count in counts)
        if replay.buffer_bytes:
            self.register_buffer("buffers_of_all_layers", torch.zeros(max(1, replay.buffer_bytes // 4)))
        self.gradients = [torch.zeros(count, dtype=dtype) for count in counts]
        self.waits = waits
        self.groups = groups_of(replay.ready_share)
        self.replays = Drawn()
        """The step that is going on."""
        self._backward_from_s = 0.0
        self._reached = 0.0

    def forward(self, step: Drawn) -> Tensor:
        """Wait for a forward; the result is what backward begins at."""
        self.replays, self._reached = step, 0.0
        self.waits.begin()
        x = torch.zeros(())
        for group in reversed(self.groups):
            x = _Release.apply(x, self, group, *(self.weights[number] for number in group.numbers))  # type: ignore[no-untyped-call]
        self.waits.wait(step.forward_s)  # what lies above is a part of it
        self._backward_from_s = self.waits.due_s
        return x

    def reach(self, share: float) -> None:
        """Wait until this share of backward is over."""
        seconds = share * self.replays.backward_s
        self.waits.until(self._backward_from_s + seconds)
        self.waits.intended_s += seconds - self._reached
        self._reached = seconds


class _Optimizer(torch.optim.Optimizer):
    """Waits as long as an optimizer took, and changes no weight."""

    def __init__(self, model: ReplayModel) -> None:
        super().__init__(model.parameters(), {})
        self.model = model
        self._stepped = False

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Begins when the last message has come: what lies before is no wait of ours."""
        self.model.waits.begin()
        self._stepped = True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """The last that an optimizer does in a step: what was measured has it in it, so the wait is what is left."""
        super().zero_grad(set_to_none)
        if self._stepped:
            self.model.waits.wait(self.model.replays.optimizer_s)
        self._stepped = False


class _Steps:
    """The drawn steps of one rank; waiting for data and copying come before each."""

    steps_per_epoch = None
    works_ahead = False

    def __init__(self, draws: Draws, waits: Waits) -> None:
        self.draws, self.waits = draws, waits

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Drawn]:
        for step in self.draws:
            self.waits.go_on()
            self.waits.wait(step.data_s)
            yield step


class ReplayTask:
    """What one rank of a rehearsal does in place of training."""

    sets_rate = has_loss = False

    def __init__(self, settings: CellSettings, replay: Replay) -> None:
        assert settings.replay is not None, "the cell is one of a rehearsal"
        self.settings, self.replay, self.planted = settings, replay, settings.replay
        self.waits = Waits()
        _wake_in_time()

    def model(self, seed: int) -> nn.Module:
        """Of zeros: nothing is computed from it."""
        return ReplayModel(self.replay, self.waits)

    def put(self, model: nn.Module, device: torch.device) -> nn.Module:
        """As it is, on the CPU."""
        return model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """One that waits."""
        assert isinstance(model, ReplayModel), "the model of this task"
        return _Optimizer(model)

    def batches(self, rank: int, processes: int) -> _Steps:
        """The steps that this rank replays, drawn with the seed."""
        cell = self.replay.cells[self.settings.id]
        draws = Draws(cell, rank, processes, self.settings.seed, delay_s=self.planted.delay_s(rank))
        return _Steps(draws, self.waits)

    def loss(self, model: nn.Module, batch: Drawn) -> tuple[Tensor, Drawn]:
        """What backward begins at; it is no loss."""
        return model(batch), batch

    def right(self, outputs: Drawn, batch: Drawn) -> None:
        """Nothing is classified. What was done after the optimizer is waited for here, in its place."""
        self.waits.go_on()
        self.waits.wait(outputs.other_s)

    def order(self, batch: Drawn) -> None:
        """There are no samples."""

    def some_batch(self, samples: int, device: torch.device) -> Drawn:
        """A step as it usually is."""
        return self.batches(0, 1).draws.usual

    def shares(self, batch: Drawn, workers: int) -> Sequence[Drawn]:
        """The same for all."""
        return [batch] * workers

    def digests(self, batch: Drawn, samples: int, length: int) -> list[str]:
        """There are no samples."""
        return []

    def sizes(self, model: nn.Module, samples: int, device: torch.device) -> Sizes:
        """Without inputs and outputs: there are none."""
        return sizes_of(model)


def _wake_in_time() -> None:
    """Let the kernel wake this process within about 1 µs of the time that it asks for, where it lets us; else 50 µs.

    With a short slice, too, as Linux 6.12 gives to any that asks for one: where ranks share a core, one that wakes up
    waits 0.1 ms for each that runs, not 1.4 (on two cores). With 162 gradients and 8 hosts (two rehearsals each, in
    turn) fidelity rose from 0.95 and 0.96 to 0.97 and 0.98. An older kernel leaves the slice as it is.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)
        if (call := SCHED_SETATTR.get(platform.machine())) is not None:
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            asked = struct.pack(SCHED_ATTR, struct.calcsize(SCHED_ATTR), os.SCHED_OTHER, 0, nice, 0, SLICE_NS, 0, 0)
            libc.syscall(call, 0, asked, 0)
    except (OSError, AttributeError):  # no Linux: waits are then a little longer, and counted as they are
        return
