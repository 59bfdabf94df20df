"""The reference that every strategy must come to: one process that averages the gradients of N micro-batches of b."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from worldsize.config import CellSettings
from worldsize.data import Batches, DataSet, training_batches
from worldsize.errors import LossNotFiniteError
from worldsize.training.recipe import change_weights, make_optimizer
from worldsize.training.trainer import endless, my_share

Batch = tuple[int, Tensor, Tensor]


class Reference:
    """Trains a model of its own on the batches of all workers, without a strategy or a channel (method.md §10).

    BatchNorm normalises over b, so one batch of N·b is not the reference.
    """

    def __init__(self, model: nn.Module, settings: CellSettings, data: DataSet, device: torch.device) -> None:
        self.model = model.train()
        self.settings = settings
        self.device = device
        self.optimizer = make_optimizer(model, settings, fused=False)
        self.shares = [share_of(worker, settings, data) for worker in range(settings.world_size)]
        self.streams = [endless(share) for share in self.shares]

    def backward(self) -> list[Batch]:
        """The gradients of the next global batch, in the model; returns the batch of each worker.

        Raises LossNotFiniteError where nothing can be compared any more.
        """
        self.optimizer.zero_grad()
        batches = [next(stream) for stream in self.streams]
        for _, inputs, labels in batches:
            loss = self._loss(inputs.to(self.device), labels.to(self.device)) / len(batches)
            if not math.isfinite(loss):
                raise LossNotFiniteError(
                    "the loss of the reference is not finite, so nothing can be compared\nLower --learning-rate."
                )
            loss.backward()
        return batches

    def step(self, rate: float) -> None:
        """Change the weights by the gradients, at this learning rate."""
        change_weights(self.model, self.optimizer, self.settings, rate)

    def _loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            return F.cross_entropy(self.model(inputs), labels, label_smoothing=self.settings.label_smoothing)

    def first_batches(self, epoch: int) -> Iterator[Batch]:
        """The first batch of each worker in an epoch."""
        for share in self.shares:
            inputs, labels = next(share.epoch(epoch))
            yield epoch, inputs, labels


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
