"""`synthetic[:CxHxW[:CLASSES[:SAMPLES]]]`: random images of any shape, for pure timing."""

import re

import numpy as np
import torch

from worldsize.config import TrainingSettings
from worldsize.data.sets import DataSet, ImageArrays, Transform, blank
from worldsize.errors import DataError

GRAMMAR = "synthetic[:CxHxW[:CLASSES[:SAMPLES]]], as in synthetic:3x64x64:100:20000"
POOL_BYTES = 256 << 20
"""At most so many bytes of distinct images in a split; further samples repeat them, so that any shape fits."""
MAX = {"CLASSES": 1_000_000, "SAMPLES": 10_000_000}
"""Largest values; the labels and the order of the samples are kept in memory."""


def load_synthetic(settings: TrainingSettings) -> DataSet:
    """Uniformly random uint8 images with random labels, from the seed; nothing can be learned from them.

    Defaults: 3x32x32, 10 classes, 50,000 samples; the test set has a fifth of them, at most 10,000. Raises
    DataError for a specification that does not follow the grammar, or an image above the pool.
    """
    shape, classes, samples = parse_spec(settings.data)
    # Mean and standard deviation of the uniform distribution on 0 … 1.
    transform = Transform(padding=4, flip=True, mean=(0.5,) * shape[0], std=(12**-0.5,) * shape[0])
    train = _random_images(shape, classes, samples, transform, [settings.seed, 0])
    test_samples = max(1, min(10_000, samples // 5))
    test = _random_images(shape, classes, test_samples, transform.without_augmentation(), [settings.seed, 1])
    return DataSet(settings.data, train, test, shape, classes, verification="generated")


def parse_spec(text: str) -> tuple[tuple[int, int, int], int, int]:
    """Shape (C, H, W), classes and samples of a specification; raise DataError for a wrong one."""
    match = re.fullmatch(r"synthetic(?::(\d+)x(\d+)x(\d+)(?::(\d+)(?::(\d+))?)?)?", text, re.ASCII)
    if match is None:
        raise DataError(f"{text!r} was given; the grammar is {GRAMMAR}")
    defaults = (3, 32, 32, 10, 50_000)
    channels, height, width, classes, samples = (
        default if given is None else int(given) for given, default in zip(match.groups(), defaults, strict=True)
    )
    if min(channels, height, width, classes, samples) < 1:
        raise DataError(f"{text!r} was given; each number must be at least 1 ({GRAMMAR})")
    for name, value in (("CLASSES", classes), ("SAMPLES", samples)):
        if value > MAX[name]:
            raise DataError(f"{text!r} was given; {name} may be at most {MAX[name]:,}")
    if channels * height * width > POOL_BYTES:
        raise DataError(f"{text!r} was given; one image may have at most {POOL_BYTES:,} bytes")
    return (channels, height, width), classes, samples


def _random_images(
    shape: tuple[int, int, int], classes: int, samples: int, transform: Transform, seed: list[int]
) -> ImageArrays:
    distinct = min(samples, max(1, POOL_BYTES // blank(1, shape, transform.padding).numel()))
    random = np.random.default_rng(seed)
    channels, height, width = shape
    images = random.integers(0, 256, size=(distinct, height, width, channels), dtype=np.uint8)
    labels = random.integers(0, classes, size=distinct, dtype=np.int64)
    # np.resize repeats them: a repeated image keeps its label.
    return ImageArrays.of(torch.from_numpy(images), torch.from_numpy(np.resize(labels, samples)), transform)
