"""The batched input pipeline: whole batches of uint8 images, augmented at once, in the training process."""

from collections.abc import Iterator

from torch import Tensor

from worldsize.data.augment import CropFlip, Normalise
from worldsize.data.order import Plan, draws
from worldsize.data.sets import ImageArrays, TensorPair, as_input

Batch = tuple[Tensor, Tensor]
"""Inputs (float32, b×C×H×W) and labels (int64, b)."""


class InProcess:
    """Batches that are made when they are asked for, so that nothing goes on while a cell waits for its turn."""

    def stand_still(self) -> None:
        """Do nothing."""

    def go_on(self) -> None:
        """Do nothing."""


class BatchedImages(InProcess):
    """Training batches of images; about forty times the images/s of the per-sample loader on one core.

    The price per image is 5·H·W·C bytes: read as uint8, written as float32 (method.md §12).
    """

    def __init__(self, split: ImageArrays, plan: Plan, channels_last: bool) -> None:
        self.split = split
        self.plan = plan
        self.channels_last = channels_last
        self.steps_per_epoch = plan.steps_per_epoch

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Batches of this process in the order of the epoch, from a step on; the same for the same (seed, epoch)."""
        split, transform = self.split, self.split.transform
        crop_flip, normalise = CropFlip(split), Normalise(transform, split.shape[2])
        top, left, flip = draws(self.plan.seed, epoch, len(split), transform.padding)
        flip &= transform.flip
        for samples in self.plan.batches(epoch, first_step):
            i = samples.numpy()
            inputs = normalise(crop_flip(i, top[i], left[i], flip[i]))
            yield inputs if self.channels_last else inputs.contiguous(), split.labels[samples]


class BatchedTensors(InProcess):
    """Training batches of a user's pair of tensors: picked, in order, and otherwise as they are."""

    def __init__(self, split: TensorPair, plan: Plan, channels_last: bool) -> None:
        self.split = split
        self.plan = plan
        self.channels_last = channels_last
        self.steps_per_epoch = plan.steps_per_epoch

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Batches of this process in the order of the epoch, from a step on; the same for the same (seed, epoch)."""
        for samples in self.plan.batches(epoch, first_step):
            inputs = self.split.inputs.index_select(0, samples)
            yield as_input(inputs, self.channels_last), self.split.labels[samples]
