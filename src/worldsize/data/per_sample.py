"""The classic input pipeline: one PIL image at a time, in the worker processes of torch's DataLoader.

It is what people write, and therefore the comparison for the batched pipeline. It also reads a user's own
map-style Dataset, whichever loader was asked for.
"""

import random
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import util
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from worldsize.data.batched import Batch, Normalise
from worldsize.data.forked import forking
from worldsize.data.order import Plan, draws, sample_bits
from worldsize.data.sets import ImageArrays, MapStyle, Split, TensorPair, as_input
from worldsize.errors import DataError, FactoryError
from worldsize.factories import raised

PIL_CHANNELS = (1, 3, 4)
"""Channels of the images that PIL can hold as bytes (L, RGB, RGBA)."""


class PerSampleLoader:
    """Training batches from torch's DataLoader, with the order and the draws of the batched pipeline.

    The worker processes of an epoch end with its iterator, also when it is left early. Raises DataError for
    images that PIL cannot hold.
    """

    def __init__(self, split: Split, plan: Plan, workers: int, channels_last: bool) -> None:
        if isinstance(split, ImageArrays) and split.shape[0] not in PIL_CHANNELS:
            raise DataError(
                f"the per-sample loader takes images of 1, 3 or 4 channels; these have {split.shape[0]}\n"
                "Use --loader batched."
            )
        self.split = split
        self.plan = plan
        self.workers = workers
        self.channels_last = channels_last
        self.steps_per_epoch = plan.steps_per_epoch
        self.works_ahead = workers > 0

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Batches of this process in the order of the epoch, from a step on; the same for the same (seed, epoch)."""
        samples = one_by_one(self.split, self.plan.seed, epoch)
        indices = (batch.tolist() for batch in self.plan.batches(epoch, first_step))
        return collated(samples, indices, self.channels_last, self.workers)


def one_by_one(split: Split, seed: int, epoch: int) -> Dataset[Any]:
    """The samples of an epoch for a DataLoader."""
    if isinstance(split, ImageArrays):
        return ImageSamples(split, seed, epoch)
    if isinstance(split, TensorPair):
        return TensorDataset(split.inputs, split.labels)
    return UserSamples(split, seed, epoch)


def collated(
    samples: Dataset[Any],
    indices: Iterable[list[int]],
    channels_last: bool,
    workers: int = 0,
) -> Iterator[Batch]:
    """Load and collate the batches of `indices`; raises FactoryError for what a user's Dataset raises."""
    options = {"multiprocessing_context": forking()} if workers else {}
    if workers:
        util.get_temp_dir()  # one for all: else each makes its own for its sockets, and leaves it where it is killed
    with warnings.catch_warnings():
        # The rank and its loader share the rank's cores on purpose (method.md §8).
        warnings.filterwarnings("ignore", message=".*worker processes in total")
        # Forking beside torch's own threads is what DataLoader does on Linux; its processes use one thread each.
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork")
        batches = iter(
            DataLoader(
                samples,
                batch_sampler=list(indices),
                num_workers=workers,
                collate_fn=_collate,
                # The global generator belongs to the model: the loader must not draw from it.
                generator=torch.Generator().manual_seed(0),
                **options,
            )
        )
    try:
        for inputs, labels in batches:
            yield as_input(inputs, channels_last), labels.to(torch.int64)
    except FactoryError as error:
        # DataLoader puts the worker's traceback before the message.
        message = str(error).rpartition("FactoryError: ")[2].strip()
        # The frames of the error hold the loader's iterator: without them its processes end here and now.
        traceback.clear_frames(error.__traceback__)
        del batches
        raise FactoryError(message) from None


class ImageSamples(Dataset[tuple[Tensor, int]]):
    """Images that are padded, cropped, flipped and normalised one by one, as float32 C×H×W."""

    def __init__(self, split: ImageArrays, seed: int, epoch: int) -> None:
        self.images = split.images.numpy()
        self.labels = split.labels.tolist()
        self.padding = split.transform.padding
        self.draws = draws(seed, epoch, len(split), self.padding)
        self.flip = self.draws.flip & split.transform.flip
        self.normalise = Normalise(split.transform, split.shape[2])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        pixels = self.images[index % len(self.images)]
        height, width, channels = pixels.shape
        top, left = int(self.draws.top[index]), int(self.draws.left[index])
        image = Image.fromarray(pixels if channels > 1 else pixels[:, :, 0])
        image = ImageOps.expand(image, self.padding, fill=0).crop((left, top, left + width, top + height))
        if self.flip[index]:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        cropped = np.array(image).reshape(1, height, width, channels)
        return self.normalise(cropped)[0], self.labels[index]


class UserSamples(Dataset[Any]):
    """A user's Dataset whose own randomness is seeded for each sample from (seed, epoch, i).

    So its augmentation, too, is the same at any world size (method.md §10); the random state of the process
    is left as it was.
    """

    def __init__(self, split: MapStyle, seed: int, epoch: int) -> None:
        self.split = split
        self.seeds = sample_bits(seed, epoch, np.arange(len(split), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Samples of a whole batch: DataLoader calls this where it is there."""
        with _random_state_kept():
            return [self._seeded(index) for index in indices]

    def _seeded(self, index: int) -> Any:
        bits = int(self.seeds[index])
        random.seed(bits)
        np.random.seed(bits & 0xFFFFFFFF)
        torch.default_generator.manual_seed(bits)
        try:
            return self.split.dataset[index]
        except Exception as error:
            raise raised(error, f"sample {index} of {self.split.reference}", self.split.file) from error


@contextmanager
def _random_state_kept() -> Iterator[None]:
    python, numpy, own = random.getstate(), np.random.get_state(), torch.default_generator.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.default_generator.set_state(own)


def _collate(samples: list[Any]) -> Any:
    """Stack the samples with torch's default_collate; samples that do not fit together are the user's mistake."""
    try:
        inputs, labels = default_collate(samples)
        return torch.as_tensor(inputs), torch.as_tensor(labels)
    except Exception as error:
        raise raised(error, "putting the samples of a batch together", None) from None
