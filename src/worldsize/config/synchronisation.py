"""Settings of the ways to synchronise: buckets, compression, how often; and what means nothing beside shards.

Which strategy reads which is in its help.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from worldsize.config.base import MAX_BATCH, absent
from worldsize.config.network import NetworkSettings
from worldsize.traits import TRAITS


class SynchronisationSettings(NetworkSettings):
    """What a strategy may be told of how it synchronises; each reads what concerns it."""

    bucket_mb: Annotated[float, Field(gt=0)] | Literal["auto"] | None = absent("25 MiB for ddp, 5 MB for bucketed")
    """Bucket size of ddp and bucketed, in MB (10^6 bytes); auto plans it from the measured link. It is that of
    gradients, also where they are compressed. `auto` plans with the backward that it measures as well; None is the
    strategy's own default: for `ddp` that of torch, 25 MiB with a first bucket of 1 MiB."""
    find_unused_parameters: bool = False
    """Let ddp look for parameters that a step does not use. It takes time in each step; without it such parameters
    are an error."""
    powersgd_rank: int = Field(default=4, ge=1, le=1024)
    """Rank of the matrices that powersgd sends in place of each gradient. A larger rank sends more, and loses less."""
    powersgd_start_step: int = Field(default=2, ge=0)
    """Uncompressed steps before powersgd compresses. They are never timed; each launch of a cell begins with them."""
    accumulate: int = Field(default=1, ge=1, le=MAX_BATCH)
    """Add up the gradients of K micro-batches of b before they are synchronised: B = N·b·K. Only the last of them
    communicates; the weights change once per K."""
    sync_every: int = Field(default=8, ge=1)
    """Steps between two averagings of local-sgd and diloco. In between nothing travels, and the ranks' weights drift
    apart."""
    sync_warmup_steps: int = Field(default=10, ge=0)
    """First steps of local-sgd and diloco, in which gradients are averaged. Ranks drift apart fastest where the loss
    falls fastest."""
    outer_learning_rate: float = Field(default=0.7, gt=0, allow_inf_nan=False)
    """Learning rate of diloco's outer optimizer, which moves the weights that all ranks share."""
    outer_momentum: float = Field(default=0.9, ge=0, lt=1)
    """Nesterov momentum of that optimizer (diloco)."""


def refuse_beside_shards(settings: Any) -> None:
    """Raise ValueError for settings that mean nothing under one of `settings.strategies`."""
    sharded = [name for name in settings.strategies if name in TRAITS and TRAITS[name].travels == "shards"]
    if not sharded:
        return
    if settings.optimizer == "muon":
        raise ValueError(f"optimizer: muon was given; it needs whole matrices, and {sharded[0]} keeps shards: give sgd")
    of_cells = [cell.leave_out or () for cell in settings.cells if cell.strategy in sharded]
    if any("initial-weights" in left_out for left_out in (settings.leave_out, *of_cells)):
        raise ValueError(
            f"leave_out: initial-weights was given; {sharded[0]} cuts one model into shards, so ranks cannot begin "
            "apart: name another strategy"
        )
