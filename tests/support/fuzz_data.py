"""A user's data set that returns whatever it was told to."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

RETURNED: dict[bool, Any] = {}
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.uint8,
    torch.int64,
    torch.int8,
    torch.bool,
    torch.complex64,
)


def images(train: bool = True) -> Any:
    """What was drawn; an exception is raised."""
    value = RETURNED[train]
    if isinstance(value, BaseException):
        raise value
    return value


class Odd:
    """A map-style data set with a length and samples of its own choice."""

    def __init__(self, length: Any, sample: Any, classes: Any) -> None:
        self.length, self.sample, self.classes = length, sample, classes

    def __len__(self) -> int:
        return self.length  # type: ignore[no-any-return]

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.sample, BaseException):
            raise self.sample
        return self.sample


def draw_value(data: st.DataObject) -> Any:
    """Tensors of all kinds and shapes, data sets, and what is neither."""
    if data.draw(st.integers(0, 3)):  # most often of the right kind: what is in them counts
        inputs, labels = (
            torch.rand(4, 3, 8, 8),
            torch.tensor([0, 1, 2, data.draw(st.sampled_from((3, 9, -1, 2**62, 2**31)))]),
        )
    else:
        inputs, labels = _tensor(data, (4, 3, 8, 8)), _tensor(data, (4,))
    length = data.draw(st.sampled_from((0, 1, 4, 2**40, -1, 2.5, None)))
    sample = data.draw(
        st.sampled_from(
            (
                (inputs[0] if len(inputs.shape) and len(inputs) else inputs, 1),
                (1, inputs),
                None,
                KeyError(3),
                "",
                (inputs, labels),
            )
        )
    )
    choices: tuple[Any, ...] = (
        *(
            (inputs, labels),
            (inputs, labels),
            (inputs, labels),
            [inputs, labels],
            (inputs.numpy(force=True) if inputs.dtype != torch.bfloat16 else None, labels),
        ),
        *(
            Odd(length, sample, data.draw(st.sampled_from((None, [], ["a"], 3, "abc")))),
            None,
            3,
            "x",
            {},
            iter(()),
            (inputs,),
            np.zeros(3),
        ),
        *(ValueError("mine\nof two lines"), KeyError(), RecursionError(), StopIteration(), inputs),
    )
    if len(inputs.shape) and len(labels.shape) and len(inputs) == len(labels):
        choices = (*choices, TensorDataset(inputs, labels))
    return choices[data.draw(st.integers(0, len(choices) - 1))]


def _tensor(data: st.DataObject, usual: tuple[int, ...]) -> torch.Tensor:
    shape = data.draw(
        st.sampled_from((usual, usual, usual, (), (0,), (4,), (3,), (4, 0), (4, 1, 1, 1), (4, 3, 8, 8, 1)))
    )
    dtype = data.draw(st.sampled_from((torch.float32, torch.int64, *DTYPES)))
    made = torch.zeros(shape, dtype=dtype)
    fill = data.draw(st.sampled_from((0, 0, 1, 5, -1, 2**62, float("nan"), float("inf"))))
    try:
        return made.fill_(fill)
    except (RuntimeError, ValueError, OverflowError):
        return made
