"""Settings of the ways to synchronise: buckets, compression, how often; which strategy reads which is in its help."""

from typing import Annotated, Literal

from pydantic import Field

from worldsize.config.base import absent
from worldsize.config.network import NetworkSettings


class SynchronisationSettings(NetworkSettings):
    """What a strategy may be told of how it synchronises; each reads what concerns it."""

    bucket_mb: Annotated[float, Field(gt=0)] | Literal["auto"] | None = absent("25 MiB for ddp, 5 MB for bucketed")
    """Bucket size of ddp, bucketed and their compressed forms, in MB (10^6 bytes); auto plans it from the measured
    link. `auto` plans with the backward that it measures as well; None is the strategy's own default: for `ddp` that of
    torch, 25 MiB with a first bucket of 1 MiB."""
    find_unused_parameters: bool = False
    """Let ddp look for parameters that a step does not use. It takes time in each step; without it such parameters
    are an error."""
    powersgd_rank: int = Field(default=4, ge=1, le=1024)
    """Rank of the matrices that powersgd sends in place of each gradient. A larger rank sends more, and loses less."""
    powersgd_start_step: int = Field(default=2, ge=0)
    """Exact steps before powersgd begins to compress. They are never timed; each launch of a cell begins with them."""
