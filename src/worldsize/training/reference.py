"""The reference that every strategy must come to: one process that averages the gradients of N·K micro-batches of b."""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.data import Batches, DataSet, training_batches
from worldsize.errors import LossNotFiniteError
from worldsize.training.classifier import Labelled, my_share
from worldsize.training.recipe import change_weights, loss_of, make_optimizer
from worldsize.training.stream import endless
from worldsize.training.task import Batch, Loss

Numbered = tuple[int, Labelled]
"""A batch, and the epoch that it is of."""


class Reference:
    """Trains a model of its own on the batches of all workers, without a strategy or a channel (method.md §10).

    BatchNorm normalises over b, so one batch of N·b·K is not the reference.
    """

    def __init__(self, model: nn.Module, settings: CellSettings, data: DataSet, device: torch.device) -> None:
        self.model = model.train()
        self.settings = settings
        self.device = device
        self.optimizer = make_optimizer(model, settings, fused=False)
        self.shares = [share_of(worker, settings, data) for worker in range(settings.world_size)]
        self.streams = [endless(share) for share in self.shares]

    def backward(self) -> list[Numbered]:
        """The gradients of the next global batch, in the model; returns the batch of each worker.

        Raises LossNotFiniteError where nothing can be compared any more.
        """
        self.optimizer.zero_grad()
        batches, size = [next(stream) for stream in self.streams], self.settings.batch_size
        shares = [
            (inputs.to(self.device), labels.to(self.device))
            for _, (of_worker, their_labels) in batches
            for inputs, labels in zip(of_worker.split(size), their_labels.split(size), strict=True)
        ]
        if not math.isfinite(add_mean_gradients(self.model, shares, self._loss)):
            raise LossNotFiniteError(
                "the loss of the reference is not finite, so nothing can be compared\nLower --learning-rate."
            )
        return batches

    def step(self, rate: float) -> None:
        """Change the weights by the gradients, at this learning rate."""
        change_weights(self._clip, self.optimizer, self.settings, rate)

    def _clip(self, largest_norm: float) -> None:
        nn.utils.clip_grad_norm_(self.model.parameters(), largest_norm)

    def first_batches(self, epoch: int) -> Iterator[Numbered]:
        """The first batch of each worker in an epoch."""
        for share in self.shares:
            yield epoch, next(share.epoch(epoch))

    def _loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        return loss_of(model, *batch, self.settings)[0]


def add_mean_gradients(model: nn.Module, shares: Sequence[Batch], loss_of_share: Loss) -> Tensor:
    """Add the mean of the gradients of all workers' shares of a batch to those of the model; returns the mean loss.

    The shares go through the model one by one: each worker's BatchNorm knows its own samples only.
    """
    losses = []
    for share in shares:
        loss = loss_of_share(model, share) / len(shares)
        loss.backward()
        losses.append(loss.detach())
    return torch.stack(losses).sum()


def share_of(worker: int, settings: CellSettings, data: DataSet) -> Batches:
    """What one worker reads, without further processes of a loader."""
    return training_batches(
        data,
        loader=settings.loader,
        loader_workers=0,
        seed=settings.seed,
        global_batch=settings.global_batch,
        share=my_share(settings, worker, settings.world_size),
    )
