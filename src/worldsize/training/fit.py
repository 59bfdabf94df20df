"""Does a step fit into memory? Each rank tries by itself, then all agree by a collective (method.md §9)."""

import gc

from worldsize.measure.accelerator import give_back_memory
from worldsize.ranks.exchange import gather
from worldsize.ranks.memory import is_out_of_memory
from worldsize.ranks.turns import Fit
from worldsize.training.trainer import Trainer


def fit(trainer: Trainer) -> Fit:
    """Forward and backward of one batch without synchronisation, on every rank; the weights stay as they are.

    Without exchange no rank waits for one whose allocation has failed. What exchange and optimizer need on top shows
    in the steps after it; a rank that fails there ends its job with the reason.
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
