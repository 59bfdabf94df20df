"""A step of several micro-batches on a clock that only the model and the link advance: where its time is said to be."""

from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor, nn

from worldsize.analysis.parts import taken_apart
from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.measure.timeline import Timeline, read
from worldsize.results.samples import SPAN_SCHEMA, STEP_SCHEMA, TAKEN_APART
from worldsize.strategies import Channel, World
from worldsize.training.classifier import Classifier
from worldsize.training.trainer import Trainer

TIMES = 3
FORWARD, LATE_LAYER, EARLY_LAYER, AFTER = 20, 5, 30, 10
"""Forward of a micro-batch; its backward until the last layer has its gradients, from there until the first has its
own, and after those."""
MESSAGE, OPTIMIZER = 12, 8
LAYERS_OF_TWO = 2


class Planted:
    """A clock that stands still unless it is told (µs)."""

    marks_are_dear = False

    def __init__(self) -> None:
        self.us = 0

    def mark(self) -> int:
        return self.us * 1000

    def read(self, mark: int) -> int:
        return mark


class Tick(torch.autograd.Function):
    """Time that passes in forward and in backward."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, clock: Planted, forward: int, backward: int) -> Tensor:
        clock.us += forward
        ctx.clock, ctx.backward_us = clock, backward
        return inputs.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        ctx.clock.us += ctx.backward_us
        return gradient, None, None, None


def tick(inputs: Tensor, clock: Planted, forward: int, backward: int) -> Tensor:
    outputs: Tensor = Tick.apply(inputs, clock, forward, backward)  # type: ignore[no-untyped-call]
    return outputs


class Ticking(nn.Module):
    """Two layers, the second of which has its gradients first."""

    def __init__(self, clock: Planted) -> None:
        super().__init__()
        self.clock, self.first, self.second = clock, nn.Linear(3 * 32 * 32, 8), nn.Linear(8, 10)

    def forward(self, inputs: Tensor) -> Tensor:
        early = tick(inputs.flatten(1).requires_grad_(), self.clock, 0, AFTER)
        late = tick(self.first(early), self.clock, FORWARD, EARLY_LAYER)
        return tick(self.second(late), self.clock, 0, LATE_LAYER)


class Arriving:
    """A message that arrives at a moment."""

    def __init__(self, clock: Planted, at_us: int, tensor: Tensor) -> None:
        self.clock, self.at_us, self.tensor = clock, at_us, tensor

    def wait(self) -> Tensor:
        self.clock.us = max(self.clock.us, self.at_us)
        return self.tensor


class Link(Channel):
    """The way to one other rank that has the same gradients: each message takes a while, one after the other."""

    def __init__(self, clock: Planted, timeline: Timeline) -> None:
        super().__init__(0, 2, timeline)
        self.clock, self.free_us = clock, 0

    def broadcast(self, tensors: Any, root: int = 0) -> None:
        """They are alike already."""

    def all_reduce(self, tensor: Tensor) -> None:
        with self.message("all_reduce", tensor.nbytes):
            self.clock.us += MESSAGE
        tensor.mul_(2)

    def all_reduce_async(self, tensor: Tensor, ready: Any = None) -> Any:
        token, now = self.observer.issued("all_reduce", tensor.nbytes, blocking=False, ready=ready), self.clock.us
        self.free_us = self.clock.us = max(now, self.free_us) + MESSAGE
        self.observer.done(token)
        self.clock.us = now
        return Arriving(self.clock, self.free_us, tensor.mul_(2))


def parts_us(strategy: str, accumulate: int) -> dict[str, float]:
    clock = Planted()
    timeline = Timeline(clock)  # type: ignore[arg-type]
    settings = CellSettings(data="digits", strategy=strategy, world_size=2, batch_size=4, accumulate=accumulate)
    world = World(Link(clock, timeline), 2, torch.device("cpu"), bucket_bytes=1, options=settings)
    classifier = Classifier(settings, load_data(settings))
    classifier.model = lambda seed: Ticking(clock)  # type: ignore[method-assign]
    trainer = Trainer(settings, classifier, world, timeline)
    trainer.optimizer.register_step_pre_hook(lambda *_: setattr(clock, "us", clock.us + OPTIMIZER))
    trainer.step()
    marks = read(timeline.take(), clock)  # type: ignore[arg-type]
    after = [(end - marks.begin) / 1e9 for _, end in marks.phases]
    at = {"rank": 0, "session": 0, "step": 0}
    step = {**at, "phases": [name for name, _ in marks.phases], "phase_ends_s": after, "step_s": after[-1]}
    span = {
        **at,
        "blocking": [m.blocking for m in marks.messages],
        "issued_s": [(m.issued - marks.begin) / 1e9 for m in marks.messages],
        "done_s": [(m.done - marks.begin) / 1e9 for m in marks.messages],
    }
    found = taken_apart(
        pl.DataFrame([step], schema={"rank": pl.Int64, **STEP_SCHEMA}),
        pl.DataFrame([span], schema={"rank": pl.Int64, **SPAN_SCHEMA}),
    )
    return {name: round(value * 1e6, 3) for name, value in found.select(TAKEN_APART).row(0, named=True).items()}


BACKWARD = LATE_LAYER + EARLY_LAYER + AFTER


@pytest.mark.parametrize("accumulate", [2, TIMES])
def test_messages_after_the_last_backward_are_exposed_and_all_micro_batches_computed(accumulate: int) -> None:
    assert parts_us("all-reduce", accumulate) == {
        "data_wait_s": 0,
        "copy_s": 0,
        "forward_s": accumulate * FORWARD,
        "backward_s": accumulate * BACKWARD,
        "exposed_sync_s": 4 * MESSAGE,
        "optimizer_s": OPTIMIZER,
        "other_s": 0,
        "comm_s": 4 * MESSAGE,
        "overlapped_s": 0,
    }


def test_buckets_beside_the_last_backward_are_hidden_until_its_last_gradient() -> None:
    """Those of the second layer fit beside the backward of the first, whose own have nothing to hide behind."""
    hidden = LAYERS_OF_TWO * MESSAGE
    assert hidden < EARLY_LAYER
    assert parts_us("bucketed", TIMES) == {
        "data_wait_s": 0,
        "copy_s": 0,
        "forward_s": TIMES * FORWARD,
        "backward_s": TIMES * BACKWARD - AFTER,
        "exposed_sync_s": LAYERS_OF_TWO * MESSAGE,
        "optimizer_s": OPTIMIZER,
        "other_s": 0,
        "comm_s": 2 * LAYERS_OF_TWO * MESSAGE,
        "overlapped_s": hidden,
    }
