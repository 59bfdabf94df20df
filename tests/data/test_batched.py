import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from worldsize.data.batched import BatchedImages
from worldsize.data.order import Plan, draws, epoch_order
from worldsize.data.per_sample import PerSampleLoader
from worldsize.data.sets import ImageArrays, Transform


def images_of(
    samples: int,
    shape: tuple[int, int, int] = (3, 8, 8),
    padding: int = 4,
    flip: bool = True,
    distinct: int | None = None,
) -> ImageArrays:
    channels, height, width = shape
    generator = torch.Generator().manual_seed(samples)
    pixels = torch.randint(
        0, 256, (distinct or samples, height, width, channels), dtype=torch.uint8, generator=generator
    )
    mean, std = torch.rand(2, channels, generator=generator).add(0.1).tolist()
    return ImageArrays.of(pixels, torch.arange(samples), Transform(padding, flip, tuple(mean), tuple(std)))


def plain_augmentation(split: ImageArrays, sample: int, seed: int, epoch: int) -> Tensor:
    """One sample by the definition, in plain torch: pad, crop, flip, scale to 0 … 1, normalise."""
    channels, height, width = split.shape
    padding = split.transform.padding
    image = split.images[sample % len(split.images)].permute(2, 0, 1)
    padded = torch.nn.functional.pad(image, [padding] * 4)
    top, left, flip = (int(column[sample]) for column in draws(seed, epoch, len(split), padding))
    crop = padded[:, top : top + height, left : left + width].to(torch.float64) / 255
    crop = crop.flip(2) if flip and split.transform.flip else crop
    mean, std = (torch.tensor(value).view(channels, 1, 1) for value in (split.transform.mean, split.transform.std))
    return (crop - mean) / std


@settings(deadline=None, max_examples=30)
@given(
    shape=st.tuples(st.sampled_from([1, 2, 3, 4, 5]), st.integers(1, 12), st.integers(1, 12)),
    padding=st.integers(0, 5),
    flip=st.booleans(),
    epoch=st.integers(0, 100),
    distinct=st.sampled_from([None, 1, 3]),
)
def test_a_batch_is_what_the_definition_says(
    shape: tuple[int, int, int], padding: int, flip: bool, epoch: int, distinct: int | None
) -> None:
    split = images_of(6, shape, padding, flip, distinct)
    [(inputs, labels)] = BatchedImages(split, Plan(6, 2, 6, slice(0, 6)), channels_last=True).epoch(epoch)
    order = epoch_order(2, epoch, 6)
    assert torch.equal(labels, order)
    expected = torch.stack([plain_augmentation(split, int(i), 2, epoch) for i in order])
    assert inputs.dtype == torch.float32
    torch.testing.assert_close(inputs, expected.float(), rtol=1e-6, atol=2e-6)


@settings(deadline=None, max_examples=20)
@given(
    shape=st.tuples(st.sampled_from([1, 3, 4]), st.integers(1, 40), st.integers(1, 40)),
    padding=st.integers(0, 5),
    flip=st.booleans(),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 100),
)
def test_both_loaders_give_the_same_batches(
    shape: tuple[int, int, int], padding: int, flip: bool, seed: int, epoch: int
) -> None:
    split = images_of(10, shape, padding, flip)
    plan = Plan(10, seed, 4, slice(1, 4))
    batched = list(BatchedImages(split, plan, channels_last=True).epoch(epoch))
    one_by_one = list(PerSampleLoader(split, plan, workers=0, channels_last=True).epoch(epoch))
    assert len(batched) == len(one_by_one) == 2
    for (a, a_labels), (b, b_labels) in zip(batched, one_by_one, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)
        assert torch.equal(a_labels, b_labels)


@pytest.mark.parametrize("loader", ["batched", "per-sample"])
def test_the_memory_format_is_as_asked(loader: str) -> None:
    split, plan = images_of(8), Plan(8, 0, 8, slice(0, 8))
    for channels_last in (True, False):
        made: BatchedImages | PerSampleLoader
        if loader == "batched":
            made = BatchedImages(split, plan, channels_last)
        else:
            made = PerSampleLoader(split, plan, 0, channels_last)
        inputs, _ = next(made.epoch(0))
        assert inputs.shape == (8, 3, 8, 8)
        assert inputs.is_contiguous(memory_format=torch.channels_last) is channels_last
        assert inputs.is_contiguous() is not channels_last


def test_a_batch_that_is_kept_is_not_overwritten_by_the_next() -> None:
    batches = BatchedImages(images_of(32), Plan(32, 0, 8, slice(0, 8)), channels_last=True).epoch(0)
    first, _ = next(batches)
    kept = first.clone()
    for _ in batches:
        pass
    assert torch.equal(first, kept)


def test_augmentation_leaves_the_images_as_they_were() -> None:
    split = images_of(32)
    before = split.padded.clone()
    for _ in BatchedImages(split, Plan(32, 0, 8, slice(0, 8)), channels_last=True).epoch(0):
        pass
    assert torch.equal(split.padded, before)


@pytest.mark.parametrize("world", [1, 2, 4])
def test_the_same_data_at_any_world_size(world: int) -> None:
    split, batch = images_of(100), 24
    local = batch // world

    def rank(index: int) -> list[Tensor]:
        plan = Plan(100, 7, batch, slice(index * local, (index + 1) * local))
        return [inputs for inputs, _ in BatchedImages(split, plan, channels_last=True).epoch(3)]

    together = [torch.cat(parts) for parts in zip(*(rank(index) for index in range(world)), strict=True)]
    alone = [x for x, _ in BatchedImages(split, Plan(100, 7, batch, slice(0, batch)), channels_last=True).epoch(3)]
    assert len(together) == len(alone) == 4
    for a, b in zip(together, alone, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_order_and_augmentation_are_drawn_anew_in_each_epoch() -> None:
    split = images_of(50, shape=(3, 32, 32))
    batches = BatchedImages(split, Plan(50, 0, 50, slice(0, 50)), channels_last=True)
    (first, first_labels), (again, _), (later, later_labels) = (next(batches.epoch(epoch)) for epoch in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first_labels, later_labels)
    by_sample = first[first_labels.argsort()], later[later_labels.argsort()]
    unchanged = (by_sample[0] == by_sample[1]).flatten(1).all(1).sum()
    assert unchanged < 5, "of 50 samples with 162 ways to be augmented, hardly any come twice the same"
