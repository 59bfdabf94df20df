"""The memory of training: the bytes of the tensors that a rank holds, and whether a step fits (method.md §9)."""

import gc
from collections.abc import Iterable

import torch
from torch import Tensor

from worldsize.measure.accelerator import give_back_memory
from worldsize.ranks.host_collectives import gather
from worldsize.ranks.memory import is_out_of_memory
from worldsize.ranks.turns import Fit
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


def fit(trainer: Trainer) -> Fit:
    """Forward and backward of one batch without synchronisation, on every rank; the weights stay as they are.

    Without synchronisation no rank waits for one whose allocation has failed. What synchronisation and optimizer need
    on top shows in the steps after it; a rank that fails there ends its job with the reason.
    """
    said = _try(trainer)
    gc.collect()  # the failed step's tensors: the agreement needs a little memory itself
    give_back_memory(trainer.device)
    everyone = gather(said, trainer.world.channel.world_size)
    failed = [(rank, message) for rank, message in enumerate(everyone) if message is not None]
    if not failed:
        return Fit(fits=True)
    return Fit(fits=False, rank=failed[0][0], message=failed[0][1])


def _try(trainer: Trainer) -> str | None:
    """What the allocator said, in one line; None if it fitted."""
    try:
        trainer.try_step()
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return (str(error).splitlines() or ["Python could not allocate memory"])[0]
    return None
