from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from worldsize import data as ws_data
from worldsize.config import Loader
from worldsize.data import DataSet, ImageArrays, MapStyle, TensorPair, Transform
from worldsize.errors import DataError


def data_of(split: Any, test: Any = None) -> DataSet:
    return DataSet("mine", split, test, (3, 4, 4), 10, verification="user")


def three_kinds(samples: int) -> list[Any]:
    pixels = torch.randint(0, 256, (samples, 4, 4, 3), dtype=torch.uint8)
    labels = torch.arange(samples)
    return [
        ImageArrays.of(pixels, labels, Transform(0, False, (0.5,) * 3, (0.5,) * 3)),
        TensorPair(pixels.permute(0, 3, 1, 2), labels),
        MapStyle(TensorDataset(pixels.permute(0, 3, 1, 2), labels), "mine.py:make"),
    ]


@settings(deadline=None, max_examples=25)
@given(samples=st.integers(1, 50), parts=st.integers(1, 7), batch=st.integers(1, 20), kind=st.integers(0, 2))
def test_the_parts_of_the_test_set_hold_each_sample_once(samples: int, parts: int, batch: int, kind: int) -> None:
    split = three_kinds(samples)[kind]
    seen = []
    for part in range(parts):
        batches = list(ws_data.test_batches(data_of(split, split), part=part, parts=parts, batch_size=batch))
        sizes = [len(labels) for _, labels in batches]
        assert all(size == batch for size in sizes[:-1])
        assert samples // parts <= sum(sizes) <= samples // parts + 1
        seen += [int(label) for _, labels in batches for label in labels]
    assert sorted(seen) == list(range(samples))


def test_all_kinds_of_sets_give_the_model_the_same_test_images() -> None:
    images, pair, dataset = (
        torch.cat([x for x, _ in ws_data.test_batches(data_of(s, s), part=0, parts=1)]) for s in three_kinds(7)
    )
    assert torch.equal(pair, dataset)
    torch.testing.assert_close(images, (pair - 0.5) / 0.5, rtol=0, atol=1e-6)
    assert all(x.is_contiguous(memory_format=torch.channels_last) for x in (images, pair, dataset))


def test_a_set_without_test_samples_says_so() -> None:
    with pytest.raises(DataError, match="mine has no test set"):
        next(ws_data.test_batches(data_of(three_kinds(3)[0]), part=0, parts=1))


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("loader", ["batched", "per-sample"])
def test_every_kind_of_set_is_trained_on_in_the_order_of_the_epoch(kind: int, loader: Loader) -> None:
    batches = ws_data.training_batches(
        data_of(three_kinds(10)[kind]), loader=loader, loader_workers=0, seed=3, global_batch=4, share=slice(2, 4)
    )
    assert batches.steps_per_epoch == 2
    order = ws_data.epoch_order(3, 5, 10)
    loaded = list(batches.epoch(5))
    assert [labels.tolist() for _, labels in loaded] == [order[2:4].tolist(), order[6:8].tolist()]
    assert all(inputs.shape == (2, 3, 4, 4) for inputs, _ in loaded)


class Counted(TensorDataset):
    """Remembers which samples were asked for."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        self.asked: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        return tuple(tensor[index] for tensor in self.tensors)


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("loader", ["batched", "per-sample"])
def test_an_epoch_can_begin_at_any_of_its_steps(kind: int, loader: Loader) -> None:
    batches = ws_data.training_batches(
        data_of(three_kinds(10)[kind]), loader=loader, loader_workers=0, seed=3, global_batch=3, share=slice(1, 3)
    )
    whole = list(batches.epoch(5))
    for first in range(4):
        rest = list(batches.epoch(5, first))
        assert len(rest) == 3 - first
        for (inputs, labels), (expected_inputs, expected_labels) in zip(rest, whole[first:], strict=True):
            assert torch.equal(inputs, expected_inputs)
            assert torch.equal(labels, expected_labels)


def test_what_comes_before_the_first_step_is_not_loaded() -> None:
    dataset = Counted(torch.rand(10, 3, 4, 4), torch.arange(10))
    batches = ws_data.training_batches(
        data_of(MapStyle(dataset, "mine.py:make")),
        loader="per-sample",
        loader_workers=0,
        seed=3,
        global_batch=4,
        share=slice(0, 4),
    )
    list(batches.epoch(5, 1))
    assert dataset.asked == ws_data.epoch_order(3, 5, 10)[4:8].tolist()


def test_a_batch_above_the_training_samples_is_refused() -> None:
    message = r"N·b = 11 is larger than the 10 training samples of mine\n.*--batch-size"
    with pytest.raises(DataError, match=message):
        ws_data.training_batches(
            data_of(three_kinds(10)[0]),
            loader="batched",
            loader_workers=0,
            seed=0,
            global_batch=11,
            share=slice(0, 11),
        )
