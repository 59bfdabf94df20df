"""The training of a classifier as the settings say it: a model, a data set, and the recipe."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from worldsize.config import CellSettings
from worldsize.data import Batches, DataSet, training_batches
from worldsize.models import build_model
from worldsize.strategies import sizes_of
from worldsize.training.memory_format import in_memory_format
from worldsize.training.proof import sample_digests
from worldsize.training.recipe import loss_of, make_optimizer
from worldsize.wire import Sizes

Labelled = tuple[Tensor, Tensor]
"""Inputs and labels."""


def my_share(settings: CellSettings, rank: int, processes: int) -> slice:
    """The part of each global batch that this process works on: its workers' local batches, side by side."""
    size = settings.global_batch // processes
    return slice(rank * size, (rank + 1) * size)


class Classifier:
    """A task (task.py) of `settings.model` on a data set."""

    sets_rate = has_loss = True

    def __init__(self, settings: CellSettings, data: DataSet) -> None:
        self.settings, self.data = settings, data

    def model(self, seed: int) -> nn.Module:
        """Of the settings, for the classes and the shape of the data."""
        return build_model(self.settings.model, classes=self.data.classes, shape=self.data.shape, seed=seed)

    def put(self, model: nn.Module, device: torch.device) -> nn.Module:
        """In the memory format that its convolutions are fastest in."""
        return in_memory_format(model, self.data.shape, device)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Of the settings, with torch's kernel for all parameters at once."""
        return make_optimizer(model, self.settings, fused=True)

    def batches(self, rank: int, processes: int) -> Batches:
        """This process's part of each global batch. Raises DataError for one above the training samples."""
        settings = self.settings
        return training_batches(
            self.data,
            loader=settings.loader,
            loader_workers=settings.loader_workers,
            seed=settings.seed,
            global_batch=settings.global_batch,
            share=my_share(settings, rank, processes),
            redrawn="sampler-epoch" not in settings.leave_out,
        )

    def loss(self, model: nn.Module, batch: Labelled) -> tuple[Tensor, Tensor]:
        """Cross-entropy, and the logits."""
        return loss_of(model, *batch, self.settings)

    def right(self, outputs: Tensor, batch: Labelled) -> Tensor:
        """How many labels have the largest logit."""
        return (outputs.detach().argmax(dim=1) == batch[1]).sum()

    def order(self, batch: Labelled) -> Tensor:
        """The labels, which are few bytes."""
        return batch[1]

    def some_batch(self, samples: int, device: torch.device) -> Labelled:
        """Noise, all of class 0."""
        inputs = torch.randn(samples, *self.data.shape, device=device)
        if inputs.dim() == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        return inputs, torch.zeros(samples, dtype=torch.int64, device=device)

    def shares(self, batch: Labelled, workers: int) -> Sequence[Labelled]:
        """Side by side."""
        inputs, labels = batch
        return list(zip(inputs.chunk(workers), labels.chunk(workers), strict=True))

    def digests(self, batch: Labelled, samples: int, length: int) -> list[str]:
        """Of each sample with its label."""
        inputs, labels = batch
        return sample_digests(inputs[:samples], labels[:samples], length)

    def sizes(self, model: nn.Module, samples: int, device: torch.device) -> Sizes:
        """From the model itself and one sample of zeros."""
        inputs = torch.zeros(1, *self.data.shape, device=device)
        with torch.no_grad():
            # In eval mode, so that the probe leaves no trace in the BatchNorm statistics.
            outputs = model.eval()(inputs)
            model.train()
        return sizes_of(
            model,
            input_bytes=inputs[0].numel() * inputs.element_size() * samples,
            output_bytes=outputs.numel() * outputs.element_size() * samples,
            powersgd_rank=self.settings.powersgd_rank,
        )
