"""What the parity test runs: training with a strategy in real processes, and the reference it is held against.

Both train on the same batches, then may look at one more batch without synchronisation and at another one with it. The
reference is one process that averages the gradients of N micro-batches of b (method.md §10). A lossy strategy's weights
leave the reference's, so its own are what it is held against: the ranks' gradients at them, by a copy of the model.
"""

import copy
import hashlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from case_jobs import do_cases
from worldsize.config import CellSettings
from worldsize.data import load_data, training_batches
from worldsize.measure.timeline import read
from worldsize.models import build_model
from worldsize.models.resnet import BasicBlock, resnet18
from worldsize.ranks.turns import Turns
from worldsize.training.classifier import my_share
from worldsize.training.trainer import Trainer

CLASSES, SHAPE = 10, (3, 16, 16)
DATA = "synthetic:3x16x16:10:64"
"""Small images: weights and messages do not depend on the size of an image."""

Gradients = list[Tensor]


@dataclass
class Reference:
    """What every strategy must come to."""

    steps: list[Gradients]
    """In each step."""
    local: list[Gradients]
    """Of each worker, in the batch after them, without synchronisation."""
    again: Gradients
    """In the batch after that, exchanged again."""


@dataclass
class Own:
    """What a lossy strategy is held against, in one step."""

    mine: Gradients
    """Of this rank."""
    mean: Gradients
    """Over the ranks."""
    norm: float
    """The mean of the norms of the ranks' gradients."""


@dataclass
class Outcome:
    """What one rank came to."""

    steps: list[Gradients]
    """In each step, after synchronisation; on rank 0 only, for they are large."""
    local: Gradients
    """Of the batch after them, without synchronisation; empty if the case does not look beyond its steps."""
    again: Gradients
    """Of the batch after that, exchanged again; likewise."""
    weights: str
    """Digest of the parameters after the last step."""
    messages: list[tuple[str, int, bool]]
    """Kind, bytes and whether it blocks, of each message of the last step."""
    buckets: int
    """How many of them say when their bucket had all of its gradients."""
    early: int
    """How many of them were issued before the last gradient was there."""
    parameter_bytes: int
    buffer_bytes: int
    own: list[dict[str, Any]]
    """Of a lossy strategy, for each of the steps and the two batches after them: an Own (on rank 0 only, but for the
    batch without synchronisation)."""


class Double(nn.Sequential):
    """A model in double precision, its inputs included."""

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = super().forward(inputs.double())  # type: ignore[no-untyped-call]
        return outputs


def small_double() -> nn.Module:
    """Two blocks of ResNet-18 between a stem and a classifier, in double precision; one layer is not trained."""
    norm = nn.BatchNorm2d(16).requires_grad_(False)
    stem = [nn.Conv2d(3, 16, 3, padding=1, bias=False), norm, nn.ReLU(inplace=True)]
    blocks = [BasicBlock(16, 32, 2), BasicBlock(32, 128, 2)]
    return _other_than_rank_0(
        Double(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, CLASSES)).double()
    )


def resnet18_single() -> nn.Module:
    """ResNet-18 in single precision whose blocks do not start as their shortcuts: or half of the gradients were 0.

    Without a kink at 0: which side of a ReLU an activation falls on depends on the vector instructions of the host.
    With AVX2 one of them fell to the other side than in the reference, and gradients differed by 0.8 %.
    """
    model = resnet18(CLASSES, SHAPE)
    for module in list(model.modules()):
        if isinstance(module, BasicBlock):
            nn.init.ones_(module.norm2.weight)
        for name, child in module.named_children():
            if isinstance(child, nn.ReLU):
                setattr(module, name, nn.SiLU())
    return _other_than_rank_0(model)


def _other_than_rank_0(model: nn.Module) -> nn.Module:
    """Other weights and buffers on all ranks but the first; they must not survive `wrap`."""
    if os.environ.get("RANK", "0") != "0":
        for tensor in model.state_dict().values():
            tensor.add_(1)
    return model


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job: each rank leaves the fields of an Outcome."""
    do_cases(payload, turns, lambda case: vars(_train(case.trainer(), case.count, beyond=case.given["beyond"])))


def _train(trainer: Trainer, count: int, *, beyond: bool) -> Outcome:
    model, keep = trainer.strategy.unwrap(), trainer.world.channel.rank == 0
    steps: list[Gradients] = []
    own: list[dict[str, Any]] = []

    def look_ahead(*, keep: bool = keep) -> None:
        if not trainer.strategy.traits.exact:
            batch, trainer.stream = _peek(trainer.stream)
            found = _own(model, batch[1], trainer.world.channel.world_size)
            own.append(vars(found) if keep else {})

    hook = trainer.optimizer.register_step_pre_hook(lambda *_: steps.append(gradients(model) if keep else []))
    for _ in range(count):
        look_ahead()
        trainer.step()
    hook.remove()
    marks = read(trainer.timeline.take(), trainer.timeline.clock)
    assert marks.last_gradient is not None
    buckets = [m for m in marks.messages if m.ready is not None]
    assert all(m.ready <= m.issued <= m.done for m in buckets)
    weights = digest(model)
    local, again = _look_beyond(trainer, look_ahead) if beyond else ([], [])
    return Outcome(
        steps=steps,
        local=local,
        again=again,
        weights=weights,
        messages=[(m.kind, m.payload_bytes, m.blocking) for m in marks.messages],
        buckets=len(buckets),
        early=sum(m.issued < marks.last_gradient for m in marks.messages),
        parameter_bytes=sum(p.numel() * p.element_size() for p in model.parameters()),
        buffer_bytes=sum(b.numel() * b.element_size() for b in model.buffers()),
        own=own,
    )


def _peek(stream: Iterator[Any]) -> tuple[Any, Any]:
    """The next batch, and a stream that gives it again."""
    batch = next(stream)
    return batch, itertools.chain([batch], stream)


def _own(model: nn.Module, batch: tuple[Tensor, Tensor], ranks: int) -> Own:
    """By a copy of the model, which no strategy has seen."""
    twin = copy.deepcopy(model)
    twin.zero_grad()
    inputs, labels = batch
    F.cross_entropy(twin(inputs), labels).backward()
    mine = gradients(twin)
    mean = [gradient.clone() for gradient in mine]
    norm = torch.stack([gradient.norm() for gradient in mine]).norm().double()
    if ranks > 1:
        for each in (*mean, norm):
            _average(each, ranks)
    return Own(mine, mean, float(norm))


def _average(tensor: Tensor, ranks: int) -> None:
    summed = tensor.contiguous()
    dist.all_reduce(summed)
    tensor.copy_(summed / ranks)


def _look_beyond(trainer: Trainer, look_ahead: Callable[..., None]) -> tuple[Gradients, Gradients]:
    """Gradients of the next batch without synchronisation, and of the one after it with exchange."""
    model = trainer.strategy.unwrap()
    look_ahead(keep=True)
    with trainer.strategy.no_sync():
        _backward(trainer)
    local = gradients(model)
    trainer.optimizer.zero_grad()
    look_ahead()
    _backward(trainer)
    return local, gradients(model)


def _backward(trainer: Trainer) -> None:
    """The gradients of the next batch; the weights stay, so that the ranks do not drift apart."""
    _, (inputs, labels) = next(trainer.stream)
    F.cross_entropy(trainer.model(inputs), labels).backward()
    trainer.strategy.synchronise()


def reference(settings: CellSettings, count: int) -> Reference:
    """One process, without a strategy, a channel or a trainer."""
    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    # In the memory format of the trainer: another one is rounded by other kernels.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    streams = [
        training_batches(
            data,
            loader="batched",
            loader_workers=0,
            seed=settings.seed,
            global_batch=settings.global_batch,
            share=my_share(settings, worker, settings.world_size),
        ).epoch(0)
        for worker in range(settings.world_size)
    ]

    def micro_batches(*, average: bool) -> Iterator[Gradients]:
        """The gradients after each of the next micro-batches: added up to their mean, or each for itself."""
        optimizer.zero_grad()
        for stream in streams:
            inputs, labels = next(stream)
            (F.cross_entropy(model(inputs), labels) / (len(streams) if average else 1)).backward()
            yield gradients(model)
            if not average:
                optimizer.zero_grad()

    steps = []
    for _ in range(count):
        *_, mean = micro_batches(average=True)
        steps.append(mean)
        optimizer.step()
    local = list(micro_batches(average=False))
    *_, again = micro_batches(average=True)
    return Reference(steps, local, again)


def gradients(model: nn.Module) -> Gradients:
    """A copy of the gradients of all trained parameters."""
    found = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None
            found.append(parameter.grad.clone())
    return found


def digest(model: nn.Module) -> str:
    """Two models have the same one exactly if each bit of their parameters is the same."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().contiguous().numpy().tobytes())
    return found.hexdigest()
