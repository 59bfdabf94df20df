"""The training recipe: the loss, how the learning rate follows the batch and the step, how the weights follow it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from worldsize.config import TrainingSettings
from worldsize.strategies.shards import local
from worldsize.training.muon import Muon

DECAYS = (0.5, 0.75)
"""Shares of the training after which `step` divides the rate (He et al. 2016, §4.2: after 32k and 48k of 64k steps)."""
DECAY = 0.1


def loss_of(model: nn.Module, inputs: Tensor, labels: Tensor, settings: TrainingSettings) -> tuple[Tensor, Tensor]:
    """The mean loss of a batch on its device, and the outputs that it comes from."""
    with torch.autocast(inputs.device.type, torch.bfloat16, enabled=settings.precision == "bf16"):
        outputs: Tensor = model(inputs)
        return F.cross_entropy(outputs, labels, label_smoothing=settings.label_smoothing), outputs


def target_rate(settings: TrainingSettings, global_batch: int) -> float:
    """The learning rate for a global batch B, after warm-up (method.md §10).

    `none` leaves it, `linear` takes it times B/B₀ (Goyal et al. 2017, §2.1), `sqrt` times its square root
    (Krizhevsky 2014).
    """
    factor = global_batch / settings.base_batch
    return settings.learning_rate * {"none": 1.0, "linear": factor, "sqrt": math.sqrt(factor)}[settings.lr_scaling]


def learning_rate(settings: TrainingSettings, global_batch: int, steps_per_epoch: int, step: int) -> float:
    """The learning rate of a step, counted from 0.

    Warm-up grows it step by step from the rate of the base batch to that of B (Goyal et al. 2017, §2.2: gradual
    warm-up), or from 0 where that is no growth. From there `constant` keeps it, `step` divides it by ten after one
    half and three quarters of the epochs, `cosine` lets it fall to 0 at their end (Loshchilov and Hutter 2017, one
    cycle).
    """
    target = target_rate(settings, global_batch)
    warmup = settings.lr_warmup_epochs * steps_per_epoch
    if step < warmup:
        first = settings.learning_rate if settings.learning_rate < target else 0.0
        return first + (target - first) * (step + 1) / math.ceil(warmup)
    if settings.lr_schedule == "constant" or settings.epochs is None:
        return target
    total = settings.epochs * steps_per_epoch
    if settings.lr_schedule == "step":
        return target * DECAY ** sum(step >= share * total for share in DECAYS)
    done = min(1.0, (step - warmup) / max(1.0, total - warmup))
    return target * (1 + math.cos(math.pi * done)) / 2


def make_optimizer(model: nn.Module, settings: TrainingSettings, *, fused: bool) -> torch.optim.Optimizer:
    """The optimizer that the settings ask for; `fused` takes torch's kernel for all parameters at once, for SGD."""
    if settings.optimizer == "muon":
        return Muon(
            model,
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            nesterov=settings.nesterov,
            dtype=torch.bfloat16 if settings.precision == "bf16" else None,
        )
    return torch.optim.SGD(
        model.parameters(),
        lr=settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.nesterov,
        # torch has no fused kernel for shards; in one call for all parameters they are at least asked for once.
        **({"fused": fused} if not any(local(p) is not p for p in model.parameters()) else {"foreach": True}),
    )


def change_weights(
    clip: Callable[[float], None], optimizer: torch.optim.Optimizer, settings: TrainingSettings, rate: float | None
) -> None:
    """Change the weights by the gradients, which `clip` cuts to a norm if that is asked for, at this learning rate.

    None leaves the rate to the optimizer. After the synchronisation: every rank then holds the same mean, and all clip
    by the same factor.
    """
    for group in optimizer.param_groups if rate is not None else ():
        group["lr"] = rate
    if settings.clip_norm is not None:
        clip(settings.clip_norm)
    optimizer.step()
