"""Entry of parity jobs: train some steps with a strategy, and keep the gradients and the weights of every rank."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from worldsize.config import CellSettings
from worldsize.data import load_data, training_batches
from worldsize.measure.clocks import HostClock
from worldsize.measure.timeline import Timeline
from worldsize.models import build_model
from worldsize.results.records import Placement
from worldsize.training.setup import Rank, choose_device, process_group, settle, world_of
from worldsize.training.trainer import Trainer, my_share
from worldsize.training.turns import Reply, Turns

Gradients = list[list[Tensor]]


def enter(payload: dict[str, Any], turns: Turns) -> None:
    """Run `payload["steps"]` steps; write gradients and weights to `payload["folder"]`/rank<k>.pt."""
    settings = CellSettings.model_validate(payload["settings"])
    placement = Placement.model_validate(payload["placement"])
    rank = Rank.from_environment()
    settle(rank, placement)
    device = choose_device(rank, placement)
    with process_group(rank, placement, device):
        timeline = Timeline(HostClock())
        trainer = Trainer(
            settings, load_data(settings), world_of(rank, settings, placement, device, timeline), timeline
        )
        kept: Gradients = []
        trainer.optimizer.register_step_pre_hook(lambda *_: kept.append(_gradients(trainer.strategy.unwrap())))
        for _ in range(payload["steps"]):
            trainer.step()
        weights = list(trainer.strategy.unwrap().state_dict().items())
        torch.save({"gradients": kept, "weights": dict(weights)}, Path(payload["folder"]) / f"rank{rank.rank}.pt")
    turns.reply(Reply())


def _gradients(model: torch.nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def reference(settings: CellSettings, steps: int) -> tuple[Gradients, dict[str, Tensor]]:
    """One process that averages the gradients of N micro-batches of b (method.md §10)."""
    data = load_data(settings)
    n = settings.world_size
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
    )
    streams = [
        iter(
            training_batches(
                data,
                loader="batched",
                loader_workers=0,
                seed=settings.seed,
                global_batch=settings.global_batch,
                share=my_share(settings, worker, n),
            ).epoch(0)
        )
        for worker in range(n)
    ]
    kept: Gradients = []
    for _ in range(steps):
        optimizer.zero_grad()
        for stream in streams:
            inputs, labels = next(stream)
            (F.cross_entropy(model(inputs.contiguous()), labels) / n).backward()
        kept.append(_gradients(model))
        optimizer.step()
    return kept, dict(model.state_dict())
