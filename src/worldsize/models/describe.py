"""What a model costs: parameters, bytes that travel, floating-point operations."""

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from worldsize.results.training_records import ModelRecord


def describe_model(name: str, model: nn.Module, shape: tuple[int, ...]) -> ModelRecord:
    """Count parameters, bytes, gradient tensors and operations of a model for samples of `shape` (C, H, W)."""
    return count_model(name, model, flops_per_sample(model, shape))


def count_model(name: str, model: nn.Module, flops: int | None) -> ModelRecord:
    """The same, where the operations per sample are known."""
    parameters = list(model.parameters())
    return ModelRecord(
        name=name,
        parameters=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=_bytes(parameters),
        buffer_bytes=_bytes(model.buffers()),
        gradient_tensors=sum(parameter.requires_grad for parameter in parameters),
        gradient_bytes=_bytes(parameter for parameter in parameters if parameter.requires_grad),
        flops_per_sample=flops,
    )


def flops_per_sample(model: nn.Module, shape: tuple[int, ...]) -> int | None:
    """Floating-point operations of forward and backward for one sample (method.md §12), a multiply-add being two.

    Counted by torch's FlopCounterMode on a batch of 2 (BatchNorm needs two), on a copy without data (the meta
    device), so that nothing is computed or changed. None for a model that cannot be traced like this.
    """
    try:
        traced = copy.deepcopy(model).to("meta").train()
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            outputs: Tensor = traced(torch.empty(2, *shape))
            outputs.sum().backward()
    # The user's code may raise anything here; that the count is absent is all there is to say.
    except Exception:
        return None
    total: int = counter.get_total_flops()
    return total // 2


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
