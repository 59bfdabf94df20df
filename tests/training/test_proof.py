"""How far two trainings are apart, and whether bits are the same."""

import math

import pytest
import torch
from torch import nn

from worldsize.training.proof import (
    FLOOR,
    digest,
    distances,
    first_apart,
    first_beyond,
    largest,
    named_gradients,
    sample_digests,
)


def test_a_distance_is_relative_to_the_norm_of_what_is_wanted() -> None:
    wanted = {"a": torch.tensor([3.0, 4.0]), "b": torch.tensor([6.0])}
    found = {"a": torch.tensor([3.0, 4.5]), "b": torch.tensor([6.0])}
    assert distances(found, wanted) == {"a": pytest.approx(0.1), "b": 0}


def test_a_gradient_that_is_only_rounding_counts_relative_to_all() -> None:
    wanted = {"weight": torch.tensor([1.0]), "bias before a BatchNorm": torch.tensor([1e-9])}
    found = {"weight": torch.tensor([1.0]), "bias before a BatchNorm": torch.tensor([-1e-9])}
    assert distances(found, wanted)["bias before a BatchNorm"] == pytest.approx(2e-9 / FLOOR)


def test_what_is_zero_on_both_sides_is_the_same_and_what_should_be_is_all_wrong() -> None:
    zero, one = torch.zeros(2), torch.ones(2)
    assert distances({"a": zero}, {"a": zero}) == {"a": 0}
    assert distances({"a": one}, {"a": zero}) == {"a": 1}


def test_a_number_that_is_none_is_a_difference() -> None:
    far = distances({"a": torch.tensor([1.0]), "b": torch.tensor([math.nan])}, dict.fromkeys("ab", torch.ones(1)))
    assert first_beyond(far, 1e-9) == "b"
    assert largest(far.values()) is None
    assert first_beyond({"a": 1e-10, "b": 1e-8, "c": 1.0}, 1e-9) == "b"


def test_a_parameter_without_a_gradient_has_one_of_zero_and_an_untrained_one_has_none() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model[0].bias.requires_grad_(False)
    model[1](torch.ones(1, 2)).sum().backward()
    found = named_gradients(model)
    assert list(found) == ["0.weight", "1.weight", "1.bias"]
    assert not found["0.weight"].any()
    assert found["1.weight"].any()


def test_digests_see_each_bit_and_no_memory_format() -> None:
    images = torch.rand(2, 3, 4, 4)
    assert digest(images) == digest(images.to(memory_format=torch.channels_last))
    other = images.clone()
    other[1, 2, 3, 3] = torch.nextafter(other[1, 2, 3, 3], torch.tensor(2.0))
    assert digest(images) != digest(other)
    assert digest(torch.tensor(3)) != digest(torch.tensor(4)), "a counter has no dimension"
    labels = torch.tensor([1, 2])
    first, second = sample_digests(images, labels), sample_digests(other, labels)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert sample_digests(images, torch.tensor([1, 3]))[1] != first[1], "the label counts as well"


def test_one_process_is_never_apart() -> None:
    assert first_apart({"a": torch.ones(1)}, processes=1) is None
