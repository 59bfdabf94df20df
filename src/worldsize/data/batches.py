"""The batches that a rank trains and tests on, of any data set and by any kind of loader."""

from collections.abc import Iterator
from typing import Protocol

import torch

from worldsize.config import Loader
from worldsize.data.batched import Batch, BatchedImages, BatchedTensors, Normalise
from worldsize.data.order import Plan
from worldsize.data.per_sample import PerSampleLoader, collated, one_by_one
from worldsize.data.sets import DataSet, ImageArrays, MapStyle, TensorPair, as_input
from worldsize.errors import DataError


class Batches(Protocol):
    """Training batches of one process."""

    steps_per_epoch: int
    """floor(D / B): the last, partial batch is dropped (method.md §1)."""
    works_ahead: bool
    """Whether batches are made before they are asked for."""

    def epoch(self, epoch: int, first_step: int = 0) -> Iterator[Batch]:
        """Inputs (float32, N×C×H×W) and labels (int64) of each step from `first_step` on, which loads none before it.

        Leaving it early leaves nothing behind.
        """
        ...


def training_batches(
    data: DataSet,
    *,
    loader: Loader,
    loader_workers: int,
    seed: int,
    global_batch: int,
    share: slice,
    redrawn: bool = True,
) -> Batches:
    """This process's part of each global batch.

    Global batch k of an epoch holds the samples k·B … (k+1)·B−1 of its order; `share` cuts this process's part out
    of it; `redrawn` draws a new order in each epoch. A user's own Dataset is read by the per-sample loader in any
    case. Raises DataError for a global batch above the training samples.
    """
    samples = len(data.train)
    if global_batch > samples:
        raise DataError(
            f"a batch of N·b = {global_batch} is larger than the {samples} training samples of {data.name}\n"
            "Give a smaller --batch-size or fewer workers."
        )
    plan = Plan(samples=samples, seed=seed, global_batch=global_batch, share=share, redrawn=redrawn)
    if loader == "per-sample" or isinstance(data.train, MapStyle):
        return PerSampleLoader(data.train, plan, loader_workers, channels_last=True)
    if isinstance(data.train, TensorPair):
        return BatchedTensors(data.train, plan, channels_last=True)
    return BatchedImages(data.train, plan, channels_last=True)


def test_batches(
    data: DataSet,
    *,
    part: int,
    parts: int,
    batch_size: int = 100,  # noqa: PT028 - batches of the test set, not a test
    channels_last: bool = True,  # noqa: PT028
) -> Iterator[Batch]:
    """One of `parts` disjoint parts of the test set, normalised and not augmented.

    Together the parts hold each test sample exactly once, so they may differ by one sample, and the last batch
    of a part may be smaller. Raises DataError if the data set has no test set.
    """
    if data.test is None:
        raise DataError(f"{data.name} has no test set")
    samples = len(data.test)
    mine = torch.arange(part * samples // parts, (part + 1) * samples // parts)
    batches = mine.split(batch_size) if len(mine) else ()
    if isinstance(data.test, MapStyle):
        unaugmented = one_by_one(data.test, seed=0, epoch=0)
        yield from collated(unaugmented, (batch.tolist() for batch in batches), channels_last)
        return
    for batch in batches:
        if isinstance(data.test, ImageArrays):
            images = data.test.images.index_select(0, batch % len(data.test.images))
            inputs = Normalise(data.test.transform, data.test.shape[2])(images.numpy())
        else:
            inputs = data.test.inputs.index_select(0, batch)
        yield as_input(inputs, channels_last), data.test.labels[batch]
