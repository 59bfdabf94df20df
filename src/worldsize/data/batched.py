"""The batched input pipeline: whole batches of uint8 images, augmented at once, in the training process.

They are cropped, flipped and normalised. Each sample becomes what the per-sample loader makes of it (per_sample.py); a
test holds the two together. The bytes are moved while they are still uint8, a quarter of what they are as float32.
"""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from worldsize.data.order import Plan, draws
from worldsize.data.sets import ImageArrays, TensorPair, Transform, as_input

Images = NDArray[np.uint8]
"""Images or batches of them, b×H×W×C."""
Batch = tuple[Tensor, Tensor]
"""Inputs (float32, b×C×H×W) and labels (int64, b)."""


class CropFlip:
    """Random crops out of padded images, some of them mirrored."""

    def __init__(self, split: ImageArrays) -> None:
        channels, height, width = split.shape
        rows = split.padded.numpy().reshape(*split.padded.shape[:2], -1)
        # Every crop there is, as a view: P × top × left × H × (W·C). Rows are copied whole, as bytes.
        self._crops = sliding_window_view(rows, (height, width * channels), axis=(1, 2))[:, :, ::channels]
        self._shape = height, width, channels

    def __call__(
        self, samples: NDArray[np.int64], top: NDArray[np.int64], left: NDArray[np.int64], flip: NDArray[np.bool_]
    ) -> Images:
        """The crop of each sample at its (top, left) in the padded image, mirrored where `flip` says so."""
        crops: Images = self._crops[samples % len(self._crops), top, left].reshape(-1, *self._shape)
        mirrored = np.flatnonzero(flip)
        # torch.flip moves pixels several times faster than a numpy view with a negative step.
        crops[mirrored] = torch.from_numpy(crops[mirrored]).flip(2).numpy()
        return crops


class Normalise:
    """uint8 b×H×W×C → float32 b×C×H×W in channels-last memory: (x/255 − mean)/std, as x·scale + offset."""

    def __init__(self, transform: Transform, width: int) -> None:
        std = torch.tensor(transform.std, dtype=torch.float64)
        scale, offset = 1 / (255 * std), -torch.tensor(transform.mean, dtype=torch.float64) / std
        # One row of the image is the unit: long enough to be vectorised, short enough to stay in the cache.
        self._scale, self._offset = (each.repeat(width).to(torch.float32) for each in (scale, offset))

    def __call__(self, images: Images) -> Tensor:
        batch, height, width, channels = images.shape
        rows = torch.from_numpy(images).view(batch * height, width * channels).to(torch.float32)
        torch.addcmul(self._offset, rows, self._scale, out=rows)
        return rows.view(batch, height, width, channels).permute(0, 3, 1, 2)


class BatchedImages:
    """Training batches of images; about forty times the images/s of the per-sample loader on one core.

    The price per image is 5·H·W·C bytes: read as uint8, written as float32 (method.md §12).
    """

    works_ahead = False

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


class BatchedTensors:
    """Training batches of a user's pair of tensors: picked, in order, and otherwise as they are."""

    works_ahead = False

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
