"""A user's own data, from a factory that is named by `package.module:factory` or `file.py:factory`."""

from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from worldsize.config import TrainingSettings
from worldsize.data.per_sample import UserSamples
from worldsize.data.sets import DataSet, MapStyle, Split, TensorPair, shape_text
from worldsize.errors import FactoryError
from worldsize.factories import Factory, find_factory, raised

ALLOWED = "a map-style torch Dataset or a pair (inputs, labels) of tensors"
MAX_SAMPLES = 2**31
"""The order of an epoch is in memory, and larger sets do not exist."""
SCANNED_SAMPLES = 1000
"""At most so many labels of a Dataset are read to learn how many classes there are."""


def load_user(settings: TrainingSettings) -> DataSet:
    """Call the user's factory, and check what it returns.

    A factory with a parameter `train` is called with True and with False; any other gives the training set, and
    there is no test set. Raises FactoryError for a factory that cannot be found, raises, or returns anything else
    than a map-style torch Dataset or a pair (inputs, labels) of tensors.
    """
    factory = find_factory(settings.data, "data set")
    has_test = factory.accepts("train")
    train = _as_split(factory(train=True) if has_test else factory(), factory)
    test = _as_split(factory(train=False), factory) if has_test else None
    shape = _sample_shape(train)
    if test is not None and _sample_shape(test) != shape:
        raise FactoryError(
            f"{settings.data}: training samples are {shape_text(shape)}, test samples "
            f"{shape_text(_sample_shape(test))}; they must be the same"
        )
    classes = max(_classes(split, settings.data) for split in (train, test) if split is not None)
    return DataSet(settings.data, train, test, shape, classes, verification="user", location=factory.file)


def _as_split(value: Any, factory: Factory) -> Split:
    if isinstance(value, tuple | list):
        return _as_pair(value, factory.reference)
    is_map_style = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if isinstance(value, IterableDataset | Tensor | dict | str | np.ndarray) or not is_map_style:
        raise FactoryError(f"{factory.reference} returned {_kind(value)}; allowed: {ALLOWED}")
    try:
        length = len(value)
    except Exception as error:
        raise raised(error, f"the length of {factory.reference}", factory.file) from error
    _not_empty(length, factory.reference)
    return MapStyle(value, factory.reference, factory.file)


def _as_pair(value: tuple[Any, ...] | list[Any], reference: str) -> TensorPair:
    kinds = ", ".join(_kind(part) for part in value)
    if len(value) != 2 or not all(isinstance(part, Tensor) for part in value):
        raise FactoryError(f"{reference} returned a {type(value).__name__} of ({kinds}); allowed: {ALLOWED}")
    inputs, labels = value
    if not (inputs.is_floating_point() or inputs.dtype == torch.uint8) or inputs.dim() < 2:
        raise FactoryError(f"{reference}: inputs are {kinds}; allowed: floats or uint8 of shape N×C×H×W")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool or labels.dim() != 1:
        raise FactoryError(f"{reference}: (inputs, labels) are ({kinds}); labels must be integers of shape N")
    if len(inputs) != len(labels):
        raise FactoryError(f"{reference}: {len(inputs)} inputs and {len(labels)} labels; they must be as many")
    _not_empty(len(labels), reference)
    return TensorPair(inputs.detach().cpu(), labels.detach().cpu().to(torch.int64))


def _not_empty(samples: int, reference: str) -> None:
    if samples > MAX_SAMPLES:
        raise FactoryError(
            f"{reference} returned a data set of {samples:,} samples; at most {MAX_SAMPLES:,} are allowed"
        )
    if samples == 0:
        raise FactoryError(f"{reference} returned a data set without samples; at least one is needed")


def _sample_shape(split: Split) -> tuple[int, ...]:
    if isinstance(split, TensorPair):
        return tuple(split.inputs.shape[1:])
    assert isinstance(split, MapStyle)
    return tuple(_checked_sample(split, 0)[0].shape)


def _classes(split: Split, reference: str) -> int:
    """The classes that a data set has, as far as it tells: `dataset.classes`, else the largest label + 1."""
    if isinstance(split, TensorPair):
        labels = split.labels
    else:
        assert isinstance(split, MapStyle)
        named = getattr(split.dataset, "classes", None)
        if isinstance(named, Sized) and len(named):
            return len(named)
        # Spread over the whole set: samples are often sorted by class.
        scanned = np.unique(np.linspace(0, len(split) - 1, SCANNED_SAMPLES).astype(int)).tolist()
        labels = torch.tensor([_checked_sample(split, index)[1] for index in scanned])
    if int(labels.min()) < 0:
        raise FactoryError(f"{reference}: a label is {int(labels.min())}; labels are 0 to classes−1")
    return int(labels.max()) + 1


def _checked_sample(split: MapStyle, index: int) -> tuple[Tensor, int]:
    """One sample as (input, label); raise FactoryError if it is anything else."""
    sample = UserSamples(split, seed=0, epoch=0)[index]
    if isinstance(sample, tuple | list) and len(sample) == 2:
        inputs, label = sample
        # PIL images are left to the user: only they know how to turn them into a tensor.
        if isinstance(inputs, Tensor | np.ndarray) and _is_integer(label):
            return torch.as_tensor(inputs), int(label)
        sample = f"({_kind(inputs)}, {_kind(label)})"
    else:
        sample = _kind(sample)
    raise FactoryError(f"{split.reference}: sample {index} is {sample}; allowed: (tensor, label as an integer)")


def _is_integer(label: Any) -> bool:
    if isinstance(label, Tensor):
        return label.numel() == 1 and not label.is_floating_point() and not label.is_complex()
    return isinstance(label, int | np.integer) and not isinstance(label, bool)


def _kind(value: Any) -> str:
    """What a value is, for a message: `None`, `list`, `float32 tensor of 50×3×32×32`."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} tensor of {shape_text(value.shape) or 'no dimension'}"
    return "None" if value is None else type(value).__name__
