"""What the tests of rarer communication run: training in real processes, and the same by hand in one.

Each rank leaves what it came to, step by step; a case may also evaluate, roll a step back, and go on from a checkpoint.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from case_jobs import CaseOnRank, do_cases
from parity import gradients
from worldsize.config import CellSettings
from worldsize.data import load_data, training_batches
from worldsize.models import build_model
from worldsize.ranks.checkpoint import agreed_checkpoint, restore, save
from worldsize.ranks.turns import Turns
from worldsize.results.checkpoints import checkpoint_folder
from worldsize.training.checkpoint import arrange_buckets
from worldsize.training.classifier import my_share
from worldsize.training.evaluate import evaluate
from worldsize.training.workload import TrainingWorkload

Tensors = list[Tensor]
Meet = Callable[[Sequence[Tensors], int], None]
"""What ranks do together after a step: (the weights of each, which are changed; steps so far)."""


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Entry of the job: a case says by `what` which of the two it is."""
    do_cases(payload, turns, lambda case: {"steps": _steps, "whole": _whole}[case.given["what"]](case))


def _steps(case: CaseOnRank) -> dict[str, Any]:
    """Gradients before the optimizer, weights after each step, and the messages of each."""
    trainer = case.trainer()
    model = trainer.strategy.unwrap()
    left: dict[str, Any] = {"gradients": [], "weights": [], "messages": [], "phases": [], "losses": []}
    trainer.optimizer.register_step_pre_hook(lambda *_: left["gradients"].append(gradients(model)))
    for _ in range(case.count):
        left["losses"].append(float(trainer.step().loss))
        step = trainer.timeline.take()
        left["weights"].append(weights(model))
        left["messages"].append([(m.kind, m.payload_bytes, m.blocking) for m in step.messages])
        left["phases"].append([name for name, _ in step.phases])
    return left


def _whole(case: CaseOnRank) -> dict[str, Any]:
    """A training that was stopped after `stop` of `count` steps, and one that was not; what it met on its way."""
    trainer, stop = case.trainer(), case.given["stop"]
    data, folder = load_data(trainer.settings), case.folder
    work = TrainingWorkload(trainer, data, folder)
    model = trainer.strategy.unwrap()
    left: dict[str, Any] = {}
    for _ in range(stop):
        trainer.step()
    save(work, checkpoint_folder(folder))
    before, state = weights(model), copy.deepcopy(trainer.strategy.state())
    trainer.timeline.take()
    with work.rolled_back():
        quiet = []
        for number in range(2 * trainer.settings.sync_every):
            trainer.step(synchronise=number % 2 == 1)
            quiet += trainer.timeline.take().messages if number % 2 == 0 else []
    left["messages_without_synchronisation"] = len(quiet)
    left["rolled back"] = same(before, weights(model)) and _same_state(state, trainer.strategy.state())
    evaluation = evaluate(trainer, data, epoch=0)
    left["evaluation"], left["own"] = evaluation, before
    left["evaluated"] = same(before, weights(model)) and _same_state(state, trainer.strategy.state())
    for _ in range(case.count - stop):
        trainer.step()
    left["gone_on"], left["state"] = weights(model), trainer.strategy.state()
    again = case.trainer()
    arrange_buckets(again)
    channel = again.world.channel
    record = agreed_checkpoint(checkpoint_folder(folder), channel.rank, channel.world_size)
    assert record is not None
    restore(TrainingWorkload(again, data, folder), checkpoint_folder(folder), record)
    for _ in range(case.count - stop):
        again.step()
    left["resumed"] = weights(again.strategy.unwrap())
    left["resumed_state"] = again.strategy.state()
    return left


def weights(model: nn.Module) -> Tensors:
    """A copy of all trained parameters."""
    return [parameter.detach().clone() for parameter in model.parameters() if parameter.requires_grad]


def same(a: Sequence[Tensor], b: Sequence[Tensor]) -> bool:
    """Each bit of them."""
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def _same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def micro_batches(settings: CellSettings) -> list[Iterator[list[tuple[Tensor, Tensor]]]]:
    """Of each worker, step by step: the K micro-batches of b."""

    def of(worker: int) -> Iterator[list[tuple[Tensor, Tensor]]]:
        share = my_share(settings, worker, settings.world_size)
        batches = training_batches(
            load_data(settings),
            loader="batched",
            loader_workers=0,
            seed=settings.seed,
            global_batch=settings.global_batch,
            share=share,
        )
        epoch = 0
        while True:
            for inputs, labels in batches.epoch(epoch):
                size = settings.batch_size
                yield list(zip(inputs.split(size), labels.split(size), strict=True))
            epoch += 1

    return [of(worker) for worker in range(settings.world_size)]


def mean_gradients(settings: CellSettings, steps: int) -> list[Tensors]:
    """One process that averages the gradients of N·K micro-batches and steps by them."""
    model, optimizer = _model(settings)
    streams, found = micro_batches(settings), []
    for _ in range(steps):
        every = [micro for stream in streams for micro in next(stream)]
        optimizer.zero_grad()
        for inputs, labels in every:
            (F.cross_entropy(model(inputs), labels) / len(every)).backward()
        found.append(gradients(model))
        optimizer.step()
    return found


def apart(settings: CellSettings, steps: int, meet: Meet) -> list[list[Tensors]]:
    """N models in one process: averaged gradients during the warm-up, then each by itself; weights by step and rank."""
    ranks, streams, found = [_model(settings) for _ in range(settings.world_size)], micro_batches(settings), []
    for step in range(steps):
        for (model, optimizer), stream in zip(ranks, streams, strict=True):
            optimizer.zero_grad()
            for inputs, labels in next(stream):
                F.cross_entropy(model(inputs), labels).backward()
        if step < settings.sync_warmup_steps:
            for column in zip(*(model.parameters() for model, _ in ranks), strict=True):
                for parameter, mean in zip(column, [_mean([p.grad for p in column])] * len(column), strict=True):
                    parameter.grad = None if mean is None else mean.clone()
        for _, optimizer in ranks:
            optimizer.step()
        with torch.no_grad():
            meet([[p for p in model.parameters() if p.requires_grad] for model, _ in ranks], step + 1)
        found.append([weights(model) for model, _ in ranks])
    return found


def _mean(tensors: Sequence[Tensor | None]) -> Tensor | None:
    there = [tensor for tensor in tensors if tensor is not None]
    return torch.stack(there).mean(dim=0) if there else None


def _model(settings: CellSettings) -> tuple[nn.Module, torch.optim.Optimizer]:
    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    options: dict[str, Any] = {"momentum": settings.momentum, "weight_decay": settings.weight_decay}
    return model, torch.optim.SGD(model.parameters(), lr=settings.learning_rate, **options)
