import random
import time
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch.utils.data import Dataset

from worldsize.data.order import Plan
from worldsize.data.per_sample import PerSampleLoader
from worldsize.data.sets import ImageArrays, MapStyle, Split, TensorPair, Transform
from worldsize.errors import DataError, FactoryError


def plan_of(samples: int, batch: int = 4) -> Plan:
    return Plan(samples, 0, batch, slice(0, batch))


def images(channels: int = 3) -> ImageArrays:
    pixels = torch.randint(0, 256, (12, 6, 6, channels), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return ImageArrays.of(pixels, torch.arange(12), Transform(2, True, (0.5,) * channels, (0.2,) * channels))


class Noisy(Dataset[Any]):
    """Draws from each of the global generators, as augmentations do."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([torch.rand(()).item(), random.random(), np.random.rand()]), index


class Faulty(Dataset[Any]):
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.samples[index], Exception):
            raise self.samples[index]
        return self.samples[index]


def by_sample(split: Split, workers: int, batch: int, epoch: int = 0) -> dict[int, torch.Tensor]:
    loader = PerSampleLoader(split, plan_of(12, batch), workers, channels_last=False)
    return {int(label): x for inputs, labels in loader.epoch(epoch) for x, label in zip(inputs, labels, strict=True)}


@pytest.mark.parametrize("split", [images(), MapStyle(Noisy(), "mine.py:make")], ids=["images", "dataset"])
def test_a_sample_is_the_same_whoever_loads_it(split: Split) -> None:
    alone, others = by_sample(split, workers=0, batch=4), by_sample(split, workers=2, batch=3)
    assert alone.keys() == others.keys() == set(range(12))
    for sample, inputs in alone.items():
        assert torch.equal(inputs, others[sample])


def test_a_users_random_augmentation_differs_by_sample_and_epoch() -> None:
    split = MapStyle(Noisy(), "mine.py:make")
    drawn = [x for epoch in (0, 1) for x in by_sample(split, 0, 4, epoch).values()]
    for column in torch.stack(drawn).T:
        assert len(column.unique()) == 24


def test_the_global_generators_are_left_alone() -> None:
    def draw() -> tuple[float, float, float]:
        return torch.rand(()).item(), random.random(), np.random.rand()

    def seed() -> None:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)

    seed()
    expected = draw()
    seed()
    for workers in (0, 1):
        by_sample(MapStyle(Noisy(), "mine.py:make"), workers, 4)
    assert draw() == expected


def living_children() -> set[int]:
    return {child.pid for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


def test_worker_processes_end_with_the_epoch() -> None:
    before = living_children()
    loader = PerSampleLoader(images(), plan_of(12), workers=2, channels_last=True)
    for _ in range(2):
        assert len(list(loader.epoch(0))) == 3
        assert living_children() == before


def test_worker_processes_end_when_the_epoch_is_left_early() -> None:
    before = living_children()
    batches = PerSampleLoader(images(), plan_of(12), workers=2, channels_last=True).epoch(0)
    next(batches)
    assert len(living_children() - before) == 2
    del batches
    deadline = time.monotonic() + 10
    while living_children() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert living_children() == before


@pytest.mark.parametrize("channels", [2, 5])
def test_channels_that_pil_cannot_hold_are_refused(channels: int) -> None:
    with pytest.raises(DataError, match=f"1, 3 or 4 channels; these have {channels}"):
        PerSampleLoader(images(channels), plan_of(12), 0, channels_last=True)


def test_a_pair_of_tensors_is_loaded_as_it_is() -> None:
    inputs, labels = torch.randn(12, 3, 4, 4), torch.arange(12)
    loaded = by_sample(TensorPair(inputs, labels), workers=0, batch=4)
    assert all(torch.equal(x, inputs[sample]) for sample, x in loaded.items())


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_users_dataset_raises_is_one_plain_line(workers: int) -> None:
    split = MapStyle(Faulty([(torch.zeros(2), 0), ValueError("bad file\nmore")]), "mine.py:make", __file__)
    loader = PerSampleLoader(split, plan_of(2, 2), workers, channels_last=True)
    message = r"^sample 1 of mine\.py:make raised ValueError: bad file \(.*test_per_sample\.py:\d+\)$"
    with pytest.raises(FactoryError, match=message):
        list(loader.epoch(0))


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("odd", [(torch.zeros(3), 0), (object(), 0), (torch.zeros(2), 0, 0)])
def test_samples_that_do_not_fit_together_are_the_users_mistake(odd: Any, workers: int) -> None:
    split = MapStyle(Faulty([(torch.zeros(2), 0), odd]), "mine.py:make")
    loader = PerSampleLoader(split, plan_of(2, 2), workers, channels_last=True)
    with pytest.raises(FactoryError, match=r"^putting the samples of a batch together raised") as caught:
        list(loader.epoch(0))
    assert "Traceback" not in str(caught.value)


def test_bytes_are_scaled_and_doubles_become_floats() -> None:
    rows = [(torch.tensor([0, 255], dtype=torch.uint8), np.int32(3))] * 2
    inputs, labels = next(PerSampleLoader(MapStyle(Faulty(rows), "m"), plan_of(2, 2), 0, channels_last=True).epoch(0))
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == [[0, 1], [0, 1]]
    assert labels.dtype == torch.int64
    doubles = [(np.array([0.5]), 1)] * 2
    inputs, _ = next(PerSampleLoader(MapStyle(Faulty(doubles), "m"), plan_of(2, 2), 0, channels_last=True).epoch(0))
    assert inputs.dtype == torch.float32
