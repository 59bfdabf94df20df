"""What a data set is: its splits, in the three kinds there are, and what is known about it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from worldsize.errors import DataError
from worldsize.results.records import WarningRecord
from worldsize.results.training_records import DataRecord

Verification = Literal["official", "embedded", "generated", "unverified", "user"]


@dataclass(frozen=True)
class Transform:
    """What happens to an image before the model sees it: pad, crop, flip (training only), normalise."""

    padding: int
    """Black pixels on each side before a crop of the image's own size."""
    flip: bool
    """Mirror half of the images; wrong where a mirrored image means something else."""
    mean: tuple[float, ...]
    """Per channel, for pixels scaled to 0 … 1."""
    std: tuple[float, ...]

    def without_augmentation(self) -> "Transform":
        """What is left for the test set: normalisation alone."""
        return replace(self, padding=0, flip=False)


@dataclass(frozen=True)
class ImageArrays:
    """Images that worldsize augments and normalises itself.

    They are stored with their black border, so that any crop is one copy of bytes: on CIFAR-10 this is a
    quarter faster, and takes 56 % more memory, than padding each batch anew.
    """

    padded: Tensor
    """uint8, P×(H+2·padding)×(W+2·padding)×C. Sample i is image i modulo P: a synthetic set may repeat images."""
    labels: Tensor
    """int64, one per sample."""
    transform: Transform

    @classmethod
    def of(cls, images: Tensor, labels: Tensor, transform: Transform) -> "ImageArrays":
        """Take uint8 images of P×H×W×C without a border."""
        count, height, width, channels = images.shape
        made = cls(blank(count, (channels, height, width), transform.padding), labels, transform)
        made.images.copy_(images)
        return made

    @property
    def images(self) -> Tensor:
        """The images without their border: a view, P×H×W×C."""
        padding, (_, rows, columns, _) = self.transform.padding, self.padded.shape
        return self.padded[:, padding : rows - padding, padding : columns - padding]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of one image."""
        height, width, channels = self.images.shape[1:]
        return channels, height, width

    def __len__(self) -> int:
        return len(self.labels)


def blank(count: int, shape: tuple[int, int, int], padding: int) -> Tensor:
    """Black images of (C, H, W) with a border, to be filled: uint8, count×(H+2·padding)×(W+2·padding)×C."""
    channels, height, width = shape
    return torch.zeros(count, height + 2 * padding, width + 2 * padding, channels, dtype=torch.uint8)


@dataclass(frozen=True)
class TensorPair:
    """A user's pair of tensors, used as they are: no augmentation, no normalisation.

    Inputs reach the model as float32; uint8 inputs are scaled to 0 … 1.
    """

    inputs: Tensor
    """N×C×H×W (other shapes are for models that take them), of a floating type or uint8."""
    labels: Tensor
    """int64, one per sample."""

    def __len__(self) -> int:
        return len(self.labels)


class SizedSamples(Protocol):
    """A map-style data set (torch.utils.data): it has a length, and samples by index."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass(frozen=True)
class MapStyle:
    """A user's map-style torch Dataset of (input, label); it augments and normalises by itself.

    Inputs reach the model as float32; uint8 inputs are scaled to 0 … 1.
    """

    dataset: SizedSamples
    reference: str
    """How the user named it, for messages."""
    file: str | None = None
    """The file of its factory, for messages."""

    def __len__(self) -> int:
        return len(self.dataset)


Split = ImageArrays | TensorPair | MapStyle


@dataclass(frozen=True)
class DataSet:
    """A training set, its test set if there is one, and what is known about them."""

    name: str
    train: Split
    test: Split | None
    shape: tuple[int, ...]
    """Shape of one sample as the model sees it (C, H, W)."""
    classes: int
    verification: Verification
    location: str | None = None
    """Folder or reference that it came from; None for what is embedded or generated."""
    warnings: list[WarningRecord] = field(default_factory=list)

    def cut(self, samples: int | None, test_samples: int | None) -> "DataSet":
        """The first samples of both parts alone; raises DataError where there are not so many."""
        train = _first(self.train, samples, f"{self.name} has", "training")
        test = None if self.test is None else _first(self.test, test_samples, f"{self.name} has", "test")
        return replace(self, train=train, test=test)

    def record(self) -> DataRecord:
        """What the results keep of it (method.md §11)."""
        return DataRecord(
            name=self.name,
            train_samples=len(self.train),
            test_samples=0 if self.test is None else len(self.test),
            shape=self.shape,
            classes=self.classes,
            verification=self.verification,
            location=self.location,
        )


def _first(split: Split, count: int | None, name: str, what: str) -> Split:
    if count is None:
        return split
    if count > len(split):
        raise DataError(f"{count} {what} samples were asked for; {name} {len(split)}")
    if isinstance(split, MapStyle):
        return replace(split, dataset=_FirstOf(split.dataset, count))
    if isinstance(split, TensorPair):
        return TensorPair(split.inputs[:count], split.labels[:count])
    return replace(split, padded=split.padded[:count], labels=split.labels[:count])


@dataclass(frozen=True)
class _FirstOf:
    """The first samples of a map-style data set."""

    dataset: SizedSamples
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> Any:
        return self.dataset[index]


def as_input(batch: Tensor, channels_last: bool) -> Tensor:
    """A batch as the model takes it: float32, uint8 scaled to 0 … 1, images in the memory format asked for."""
    scaled = batch.to(torch.float32).div_(255) if batch.dtype == torch.uint8 else batch.to(torch.float32)
    if channels_last and scaled.dim() == 4:
        return scaled.contiguous(memory_format=torch.channels_last)
    return scaled.contiguous()


def shape_text(shape: Sequence[int]) -> str:
    """`3×32×32`, as it is printed."""
    return "×".join(str(size) for size in shape)
