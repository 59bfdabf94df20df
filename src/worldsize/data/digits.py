"""`digits`: the 1,797 real images of handwritten digits that come with scikit-learn; needs no download.

They are scaled to 32×32 in 3 channels, so that a model's work per sample is the same as on CIFAR-10, and a
real accuracy is reached within a minute.
"""

import importlib.util
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from worldsize.config import TrainingSettings
from worldsize.data.sets import DataSet, ImageArrays, Transform
from worldsize.errors import DataError

SIZE, CHANNELS, CLASSES = 32, 3, 10
TEST_PER_CLASS = 36
"""360 test images, as many of each digit; 1,437 are left to train on."""
SPLIT_SEED = 1797
"""Fixed: the split belongs to the data set, not to a run."""


def load_digits(settings: TrainingSettings) -> DataSet:
    """The digits with their fixed split; `settings` change nothing in it."""
    pixels, labels = _read()
    images = _as_rgb(pixels)
    is_test = torch.from_numpy(_test_samples(labels))
    shades = images[~is_test].to(torch.float64) / 255
    mean, std = shades.mean().item(), shades.std(correction=0).item()
    # No flip: the mirror image of a digit is another sign, or none.
    transform = Transform(padding=4, flip=False, mean=(mean,) * CHANNELS, std=(std,) * CHANNELS)
    classes = torch.from_numpy(labels)
    train = ImageArrays.of(images[~is_test], classes[~is_test], transform)
    test = ImageArrays.of(images[is_test], classes[is_test], transform.without_augmentation())
    return DataSet("digits", train, test, train.shape, CLASSES, verification="embedded")


def _read() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Pixels (1797×8×8, 0 … 16) and labels, from the file in the installed scikit-learn.

    Reading that file takes 10 ms; importing sklearn.datasets takes 2 s, in each worker of each cell.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None:
        raise DataError("digits needs scikit-learn, which is not installed\nInstall it: pip install scikit-learn")
    for folder in spec.submodule_search_locations or ():
        file = Path(folder) / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            table = np.loadtxt(file, delimiter=",", dtype=np.int64)
            return table[:, :-1].reshape(-1, 8, 8).astype(np.uint8), table[:, -1]
    from sklearn.datasets import load_digits as load  # where a later release keeps the file elsewhere

    bunch = load()
    return bunch.images.astype(np.uint8), bunch.target.astype(np.int64)


def _as_rgb(pixels: NDArray[np.uint8]) -> Tensor:
    """8×8 of 0 … 16 → 32×32×3 of 0 … 255 (uint8, N×H×W×C), bilinear."""
    grey = torch.from_numpy(pixels).to(torch.float32)[:, None] * (255 / 16)
    scaled = F.interpolate(grey, size=(SIZE, SIZE), mode="bilinear", align_corners=False)
    return scaled.round().to(torch.uint8).permute(0, 2, 3, 1).repeat(1, 1, 1, CHANNELS)


def _test_samples(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which samples are the test set: TEST_PER_CLASS of each digit, drawn from a fixed seed."""
    random = np.random.default_rng(SPLIT_SEED)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for digit in range(CLASSES):
        chosen[random.permutation(np.flatnonzero(labels == digit))[:TEST_PER_CLASS]] = True
    return chosen
