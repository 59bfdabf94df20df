"""The memory of training, taken apart: the bytes of the tensors that a rank holds (method.md §9)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from worldsize.results.memory_records import MemoryParts
from worldsize.training.trainer import Trainer, tensor_bytes


def memory_parts(trainer: Trainer) -> MemoryParts:
    """What this rank holds, in bytes; call it when a step is done: the optimizer's state begins there."""
    model = trainer.strategy.unwrap()
    model_bytes = tensor_bytes(model.parameters()) + tensor_bytes(model.buffers())
    before = trainer.built_bytes
    return MemoryParts(
        rank=trainer.world.channel.rank,
        parameter_bytes=tensor_bytes(model.parameters()),
        buffer_bytes=tensor_bytes(model.buffers()),
        gradient_bytes=trainer.gradient_bytes or 0,
        optimizer_bytes=tensor_bytes(_states(trainer.optimizer)),
        copy_bytes=trainer.strategy.copied_bytes,
        before_bytes=None if before is None else max(0, before - model_bytes),
    )


def _states(optimizer: torch.optim.Optimizer) -> Iterable[Tensor]:
    return (value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor))
