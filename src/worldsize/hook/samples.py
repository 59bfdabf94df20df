"""What a model is called for: how many samples a batch of any structure has (method.md §13), and whether to train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def leading(value: Any) -> int:
    """The first dimension of the first tensor in a batch of any structure; 0 without one."""
    if isinstance(value, Tensor) and value.dim():
        return value.size(0)
    if isinstance(value, tuple) and value and isinstance(value[0], Tensor) and value[0].dim():  # nearly always
        return value[0].size(0)
    return next((each.shape[0] for each in tensors(value) if each.dim()), 0)


def tensors(value: Any) -> Iterator[Tensor]:
    """All tensors of a batch, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors(each)
    elif hasattr(value, "data") and not callable(value.data) and value.data is not value:  # transformers' BatchEncoding
        yield from tensors(value.data)


def trains(module: nn.Module) -> bool:
    """Whether a module is in training mode; a framework may switch what a wrapper wraps, and not the wrapper."""
    return module.training or any(child.training for child in module.children())
