"""What a thread hands over is a batch, or a message to the training loop (method.md §8)."""

from collections import UserDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from worldsize.data.looks import is_batch


@dataclass
class Own:
    """A batch in a class of the user's own."""

    x: Any


class Slots:
    """Something without attributes that can be listed."""

    __slots__ = ()


@pytest.mark.parametrize(
    "batch",
    [
        torch.ones(2, 3),
        (np.ones(4), 1),
        {"ids": [torch.ones(1)]},
        UserDict(input_ids=torch.ones(2)),
        Own(torch.ones(2)),
        [Own(np.ones(2))],
        b"encoded",
        [list(range(16)), list(range(16))],
        ["a text"] * 16,
    ],
)
def test_a_batch(batch: Any) -> None:
    assert is_batch(batch)


@pytest.mark.parametrize(
    "message",
    [
        None,
        "an epoch is over",
        0.5,
        torch.tensor(0.5),
        np.float32(0.5),
        {"loss": 0.5, "step": 3},
        ("saved", "a/path"),
        ValueError("it failed"),
        Slots(),
        Own(1),
        [1.0] * 4,
    ],
)
def test_a_message(message: Any) -> None:
    assert not is_batch(message)


def test_one_that_contains_itself_is_looked_at_for_a_while() -> None:
    ring: list[Any] = []
    ring += [ring, ring]
    assert not is_batch(ring)
