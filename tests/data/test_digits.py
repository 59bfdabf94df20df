import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits as sklearn_digits

from worldsize.config import TrainingSettings
from worldsize.data import DataSet, ImageArrays, digits, load_data, training_batches


@pytest.fixture(scope="module")
def data() -> DataSet:
    return load_data(TrainingSettings())


def test_the_split_is_fixed_and_every_digit_is_in_both_parts(data: DataSet) -> None:
    record = data.record()
    assert (record.name, record.train_samples, record.test_samples) == ("digits", 1437, 360)
    assert (record.shape, record.classes, record.verification) == ((3, 32, 32), 10, "embedded")
    assert data.warnings == []
    other_seed = load_data(TrainingSettings(seed=5))
    for split, other in ((data.train, other_seed.train), (data.test, other_seed.test)):
        assert isinstance(split, ImageArrays)
        assert isinstance(other, ImageArrays)
        assert torch.equal(split.images, other.images)
    assert isinstance(data.test, ImageArrays)
    assert data.test.labels.bincount().tolist() == [36] * 10


def test_the_file_is_read_as_scikit_learn_reads_it() -> None:
    pixels, labels = digits._read()
    bunch = sklearn_digits()
    assert np.array_equal(pixels, bunch.images)
    assert np.array_equal(labels, bunch.target)


def test_no_image_is_in_both_parts_and_none_is_lost(data: DataSet) -> None:
    assert isinstance(data.train, ImageArrays)
    assert isinstance(data.test, ImageArrays)
    train, test = ([image.numpy().tobytes() for image in split.images] for split in (data.train, data.test))
    all_images = digits._as_rgb(digits._read()[0])
    assert sorted(train + test) == sorted(image.numpy().tobytes() for image in all_images)


def test_the_training_images_are_normalised_by_their_own_statistics(data: DataSet) -> None:
    assert isinstance(data.train, ImageArrays)
    transform = data.train.transform
    scaled = (data.train.images / 255 - transform.mean[0]) / transform.std[0]
    assert abs(scaled.mean().item()) < 1e-4
    assert abs(scaled.std().item() - 1) < 1e-4
    assert data.train.images.max() == 255


def test_digits_are_never_mirrored(data: DataSet) -> None:
    assert isinstance(data.train, ImageArrays)
    assert not data.train.transform.flip
    batches = training_batches(
        data, loader="batched", loader_workers=0, seed=0, global_batch=1437, share=slice(0, 1437)
    )
    inputs, labels = next(batches.epoch(0))
    # Seen from far enough, a crop is still nearer to its own class's mean image than its mirror image is.
    means = torch.stack([inputs[labels == digit].mean(0) for digit in range(10)])[labels]
    upright, tracked = ((images - means).square().mean() for images in (inputs, inputs.flip(3)))
    assert upright < tracked
