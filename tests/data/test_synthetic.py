import pytest
import torch

from worldsize.config import TrainingSettings
from worldsize.data import ImageArrays, load_data, synthetic
from worldsize.data.synthetic import parse_spec
from worldsize.errors import DataError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("synthetic", ((3, 32, 32), 10, 50_000)),
        ("synthetic:1x28x20", ((1, 28, 20), 10, 50_000)),
        ("synthetic:3x64x64:100", ((3, 64, 64), 100, 50_000)),
        ("synthetic:3x64x64:100:2000", ((3, 64, 64), 100, 2000)),
    ],
)
def test_the_grammar(text: str, expected: object) -> None:
    assert parse_spec(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "synthetic:",
        "synthetic:32x32",
        "synthetic:3x32x32:",
        "synthetic:3x32x32:10:5:1",
        "synthetic:3x-2x2",
        "synthetic:ax2x2",
    ],
)
def test_what_does_not_follow_it_is_answered_with_it(text: str) -> None:
    with pytest.raises(DataError, match=r"grammar is synthetic\[:CxHxW"):
        load_data(TrainingSettings(data=text))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("synthetic:3x0x32", "at least 1"),
        ("synthetic:3x8x8:0", "at least 1"),
        ("synthetic:3x8x8:10:99999999999", "SAMPLES may be at most 10,000,000"),
        ("synthetic:3x8x8:99999999999", "CLASSES may be at most 1,000,000"),
        ("synthetic:3x100000x100000", "one image may have at most"),
    ],
)
def test_sizes_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(DataError, match=told):
        load_data(TrainingSettings(data=text))


def loaded(text: str, seed: int = 0) -> tuple[ImageArrays, ImageArrays]:
    data = load_data(TrainingSettings(data=text, seed=seed))
    assert isinstance(data.train, ImageArrays)
    assert isinstance(data.test, ImageArrays)
    return data.train, data.test


def test_shape_classes_and_samples_are_as_asked() -> None:
    record = load_data(TrainingSettings(data="synthetic:2x5x7:4:103")).record()
    assert (record.shape, record.classes, record.train_samples, record.test_samples) == ((2, 5, 7), 4, 103, 20)
    assert record.verification == "generated"
    train, test = loaded("synthetic:2x5x7:4:103")
    assert train.images.shape == (103, 5, 7, 2)
    assert test.images.shape == (20, 5, 7, 2)
    assert set(train.labels.tolist()) == {0, 1, 2, 3}


def test_the_same_seed_gives_the_same_images_and_test_images_are_others() -> None:
    (train, test), (again, _), (other, _) = (loaded("synthetic:1x4x4:3:50", seed) for seed in (1, 1, 2))
    assert torch.equal(train.images, again.images)
    assert not torch.equal(train.images, other.images)
    assert not torch.equal(train.images[: len(test)], test.images)


def test_a_large_set_repeats_the_images_of_its_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "POOL_BYTES", 40 * 40 * 3 * 7)
    train, test = loaded("synthetic:3x32x32:10:100")
    assert len(train) == 100
    assert len(train.images) == 7
    assert torch.equal(train.labels, train.labels[:7].repeat(15)[:100]), "a repeated image keeps its label"
    assert len(test) == 20
