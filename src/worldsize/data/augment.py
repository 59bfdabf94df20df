"""Crop, flip and normalise a whole batch of uint8 images at once.

Each sample becomes what the per-sample loader makes of it (per_sample.py); a test holds the two together. The
bytes are moved while they are still uint8, a quarter of what they are as float32.
"""

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from worldsize.data.sets import ImageArrays, Transform

Images = NDArray[np.uint8]
"""Images or batches of them, b×H×W×C."""


class CropFlip:
    """Random crops out of padded images, some of them tracked."""

    def __init__(self, split: ImageArrays) -> None:
        channels, height, width = split.shape
        rows = split.padded.numpy().reshape(*split.padded.shape[:2], -1)
        # Every crop there is, as a view: P × top × left × H × (W·C). Rows are copied whole, as bytes.
        self._crops = sliding_window_view(rows, (height, width * channels), axis=(1, 2))[:, :, ::channels]
        self._shape = height, width, channels

    def __call__(
        self, samples: NDArray[np.int64], top: NDArray[np.int64], left: NDArray[np.int64], flip: NDArray[np.bool_]
    ) -> Images:
        """The crop of each sample at its (top, left) in the padded image, tracked where `flip` says so."""
        crops: Images = self._crops[samples % len(self._crops), top, left].reshape(-1, *self._shape)
        tracked = np.flatnonzero(flip)
        # torch.flip moves pixels several times faster than a numpy view with a negative step.
        crops[tracked] = torch.from_numpy(crops[tracked]).flip(2).numpy()
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
