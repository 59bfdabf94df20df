"""Which sample comes when, and how it is augmented: functions of (seed, epoch) and (seed, epoch, i) alone.

So the same data reach the model at any world size, local batch and kind of loader (method.md §10).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_ORDER, _AUGMENTATION = 1, 2
"""Streams: the order of an epoch must not be tied to how its samples are augmented."""


class Draws(NamedTuple):
    """How each sample of an epoch is augmented: three columns, indexed by sample."""

    top: NDArray[np.int64]
    """First row of the crop in the padded image, 0 to 2·padding."""
    left: NDArray[np.int64]
    """First column of the crop in the padded image, 0 to 2·padding."""
    flip: NDArray[np.bool_]
    """Whether the cropped image is mirrored."""


@dataclass(frozen=True)
class Plan:
    """Which samples of each epoch this process works on, and in which steps."""

    samples: int
    """D: samples of the training set."""
    seed: int
    global_batch: int
    """B: samples per step of all workers."""
    share: slice
    """The part of each global batch that belongs to this process."""
    redrawn: bool = True
    """False keeps the order of epoch 0 in every epoch: what happens when a sampler is not told of its epoch."""

    @property
    def steps_per_epoch(self) -> int:
        """floor(D / B): the last, partial batch is dropped (method.md §1)."""
        return self.samples // self.global_batch

    def batches(self, epoch: int, first_step: int = 0) -> Iterator[Tensor]:
        """Indices of this process's samples, step by step (int64), from a step of the epoch on."""
        order = epoch_order(self.seed, epoch if self.redrawn else 0, self.samples)
        for step in range(first_step, self.steps_per_epoch):
            yield order[step * self.global_batch : (step + 1) * self.global_batch][self.share]


def epoch_order(seed: int, epoch: int, samples: int) -> Tensor:
    """The order of the samples in an epoch: a permutation of 0 … samples−1 (int64), re-drawn each epoch."""
    generator = torch.Generator().manual_seed(_key(seed, epoch, _ORDER))
    return torch.randperm(samples, generator=generator)


def draws(seed: int, epoch: int, samples: int, padding: int) -> Draws:
    """Crop offsets and flips of all samples of an epoch (method.md §10)."""
    bits = sample_bits(seed, epoch, np.arange(samples, dtype=np.uint64))
    places = np.uint64(2 * padding + 1)
    top, left = ((bits >> np.uint64(shift) & np.uint64(0xFFFFFF)) * places >> np.uint64(24) for shift in (40, 16))
    return Draws(top.astype(np.int64), left.astype(np.int64), (bits >> np.uint64(15) & np.uint64(1)).astype(np.bool_))


def sample_bits(seed: int, epoch: int, samples: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each of the samples: splitmix64 at position i of a stream keyed by (seed, epoch).

    Being a hash of a counter, no draw depends on another. Source: Steele, Lea, Flood, "Fast splittable
    pseudorandom number generators", OOPSLA 2014.
    """
    return _mix(np.uint64(_key(seed, epoch, _AUGMENTATION)) + (samples + np.uint64(1)) * np.uint64(_GOLDEN))


def _key(seed: int, epoch: int, stream: int) -> int:
    """One 64-bit key for (seed, epoch, stream); mixed after each, so that (1, 0) and (0, 1) differ."""
    key = np.zeros(1, np.uint64)
    for value in (seed, epoch, stream):
        key = _mix(key + np.uint64((value + _GOLDEN) & _MASK))
    return int(key[0])


def _mix(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64; arithmetic on uint64 arrays wraps around, as it must."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
