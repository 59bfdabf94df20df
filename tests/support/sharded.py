"""What test_fsdp.py runs in real processes: training in shards, all that is asked of it, and what each rank saw."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from case_jobs import CaseOnRank, do_cases
from worldsize.data import load_data, test_batches
from worldsize.measure.message_counter import MessageCounter
from worldsize.measure.timeline import Marks, Phase, read
from worldsize.models.resnet import BasicBlock
from worldsize.ranks.checkpoint import agreed_checkpoint, restore, save
from worldsize.ranks.turns import Turns
from worldsize.strategies import find_strategy
from worldsize.strategies.shards import blocks_of
from worldsize.training.checkpoint import arrange_buckets
from worldsize.training.evaluate import evaluate
from worldsize.training.memory import memory_parts
from worldsize.training.trainer import Trainer
from worldsize.training.workload import TrainingWorkload

STEPS = 5
CLASSES = 10
Sent = tuple[str, int]
"""Kind and bytes."""


@dataclass
class Seen:
    """What one rank saw."""

    gradients: list[dict[str, Tensor]] = field(default_factory=list)
    """Of each step, whole."""
    weights: dict[str, Tensor] = field(default_factory=dict)
    """After the last one, whole."""
    messages: list[tuple[str, int, bool, bool]] = field(default_factory=list)
    """Of the last step as the timeline has them: kind, bytes, whether it blocks, whether it was waited for."""
    counted: dict[str, int] = field(default_factory=dict)
    """Kind → calls in that step, as torch's dispatcher has them."""
    overlapping: int = 0
    """All-gathers of that step between whose issue and the wait for them a block was over, or a gradient there."""
    block_bytes: tuple[int, ...] = ()
    parameter_bytes: int = 0
    gradient_bytes: int = 0
    wire_bytes: int = 0
    formula: str = ""
    memory: dict[str, int] = field(default_factory=dict)
    silent: list[dict[str, int]] = field(default_factory=list)
    """Kind → calls, in each of three steps without synchronisation."""
    after_silence: bool = False
    """Whether weights and optimizer are bit for bit what they were before those."""
    local: dict[str, Tensor] = field(default_factory=dict)
    """Of the first batch of a second epoch, of this rank alone."""
    accuracy: float = 0.0
    test_loss: float = 0.0
    plain_loss: float = 0.0
    """Of a model of its own with the same weights, on the whole test set."""
    test_samples: int = 0
    apart: bool = True
    after_evaluation: bool = False
    """Whether parameters are shards again."""
    went_on: dict[str, Tensor] = field(default_factory=dict)
    """Weights two steps after a checkpoint, by the trainer that wrote it."""
    resumed: dict[str, Tensor] = field(default_factory=dict)
    """By one that was made of it."""
    planted: dict[str, list[float]] = field(default_factory=dict)
    """By dtype, of a parameter whose gradient is rank + 1: what its shard has."""


class Net(nn.Sequential):
    """In double precision, its inputs included; the last dimension of the classifier is divided by no N but 2."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs.double())  # type: ignore[no-untyped-call]
        return outputs


def net() -> nn.Module:
    """A stem that is not trained in full, three blocks with messages of their own, a small one, and a classifier."""
    frozen = nn.BatchNorm2d(16).requires_grad_(False)
    stem = [nn.Conv2d(3, 16, 3, stride=2, padding=1, bias=False), frozen, nn.ReLU()]
    blocks = nn.Sequential(BasicBlock(16, 64, 1), BasicBlock(64, 80, 2), BasicBlock(80, 80, 1), BasicBlock(80, 16, 1))
    model = Net(*stem, blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)).double()
    if os.environ.get("RANK", "0") != "0":  # they must not survive `wrap`
        for tensor in model.state_dict().values():
            tensor.add_(1)
    return model


class Planted(nn.Module):
    """Its gradient is its input."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(7, 3, dtype=dtype))  # rows that no N divides

    def forward(self, inputs: Tensor) -> Tensor:
        return (self.weight * inputs).sum()


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job: each rank leaves the fields of a Seen."""
    do_cases(payload, turns, _seen)


def _seen(case: CaseOnRank) -> dict[str, Any]:
    seen, first = Seen(), case.trainer()
    _train(first, seen)
    _be_silent(first, case.folder / "work", seen)
    _evaluate(first, seen)
    _go_on(first, case.trainer, case.folder / "checkpoint", seen)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        _plant(first, dtype, seen)
    return vars(seen)


def _train(trainer: Trainer, seen: Seen) -> None:
    strategy = trainer.strategy
    sizes = trainer.sizes()
    wire = strategy.wire_bytes(sizes)
    seen.block_bytes, seen.parameter_bytes, seen.gradient_bytes = (
        sizes.block_bytes,
        sizes.parameter_bytes,
        sizes.gradient_bytes,
    )
    seen.wire_bytes, seen.formula = wire.busiest_rank_bytes, wire.formula
    hook = trainer.optimizer.register_step_pre_hook(lambda *_: seen.gradients.append(strategy.full_gradients()))
    for _ in range(STEPS - 1):
        trainer.step()
    hook.remove()
    done: list[int] = []
    blocks = blocks_of(strategy.unwrap())
    hooks = [block.register_forward_hook(lambda *_: done.append(trainer.timeline.clock.mark())) for block in blocks]
    hooks += [
        parameter.register_post_accumulate_grad_hook(lambda *_: done.append(trainer.timeline.clock.mark()))
        for parameter in strategy.hooked_parameters()
    ]
    with MessageCounter("step") as counter:
        trainer.step()
    for each in hooks:
        each.remove()
    seen.counted = {count.kind: count.calls for count in counter.counts()}
    marks: Marks = read(trainer.timeline.take(), trainer.timeline.clock)
    assert marks.last_gradient is not None
    seen.messages = [(m.kind, m.payload_bytes, m.blocking, m.awaited is not None) for m in marks.messages]
    gathers = [m for m in marks.messages if m.kind == "all_gather"]
    assert all(m.issued <= m.awaited for m in gathers)
    last = max(m.issued for m in marks.messages if m.kind == "reduce_scatter")
    assert marks.ends[Phase.FORWARD] < marks.last_gradient <= last  # backward computes until the last message is issued
    seen.overlapping = sum(any(m.issued < mark < m.awaited for mark in done) for m in gathers)
    seen.weights = strategy.full_weights()
    seen.memory = memory_parts(trainer).model_dump(exclude_none=True)


def _be_silent(trainer: Trainer, folder: Path, seen: Seen) -> None:
    workload = TrainingWorkload(trainer, None, folder)
    before = _everything(trainer)
    with workload.rolled_back():
        for _ in range(3):
            with MessageCounter("silent") as counter:
                trainer.step(synchronise=False)
            seen.silent.append({count.kind: count.calls for count in counter.counts()})
    trainer.timeline.take()
    after = _everything(trainer)
    seen.after_silence = before.keys() == after.keys() and all(torch.equal(before[key], after[key]) for key in before)
    _, batch = next(trainer.stream)
    seen.local = trainer.strategy.local_gradients(lambda: trainer.loss(batch)[0].backward())


def _everything(trainer: Trainer) -> dict[str, Tensor]:
    """A copy of what this rank holds."""
    state = trainer.optimizer.state.values()
    moments = {f"moment {number}": each["momentum_buffer"] for number, each in enumerate(state)}
    held = {**trainer.strategy.unwrap().state_dict(), **moments}
    return {name: (t.to_local() if hasattr(t, "to_local") else t).clone() for name, t in held.items()}


def _evaluate(trainer: Trainer, seen: Seen) -> None:
    data = load_data(trainer.settings)
    evaluation = evaluate(trainer, data, epoch=0)
    assert evaluation is not None
    assert evaluation.divergence is not None
    assert evaluation.test_loss is not None
    seen.accuracy, seen.test_loss = evaluation.test_accuracy, evaluation.test_loss
    seen.test_samples, seen.apart = evaluation.test_samples, evaluation.divergence.apart
    model = net().eval()
    model.load_state_dict({**trainer.strategy.full_weights(), **dict(trainer.strategy.unwrap().named_buffers())})
    with torch.no_grad():
        losses = [F.cross_entropy(model(x), y, reduction="sum") for x, y in test_batches(data, part=0, parts=1)]
    seen.plain_loss = float(sum(losses)) / evaluation.test_samples
    seen.after_evaluation = all(hasattr(p, "to_local") for p in trainer.strategy.unwrap().parameters())


def _go_on(first: Trainer, another: Any, folder: Path, seen: Seen) -> None:
    save(TrainingWorkload(first, None, folder), folder)
    first.go_on_after(first.steps)  # a batch was looked at beside
    for _ in range(2):
        first.step()
    seen.went_on = first.strategy.full_weights()
    second = another()
    channel = second.world.channel
    record = agreed_checkpoint(folder, channel.rank, channel.world_size)
    assert record is not None
    arrange_buckets(second)
    restore(TrainingWorkload(second, None, folder), folder, record)
    for _ in range(2):
        second.step()
    seen.resumed = second.strategy.full_weights()


def _plant(trainer: Trainer, dtype: torch.dtype, seen: Seen) -> None:
    strategy = find_strategy("fsdp")(trainer.world)
    model = strategy.wrap(Planted(dtype))
    rank = trainer.world.channel.rank
    model(torch.full((7, 3), rank + 1.0, dtype=dtype)).backward()
    strategy.synchronise()
    gradient: Any = strategy.unwrap().weight.grad
    seen.planted[str(dtype)] = gradient.to_local().reshape(-1).tolist()
