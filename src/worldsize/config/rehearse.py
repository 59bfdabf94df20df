"""Settings of a rehearsal: what `worldsize rehearse` takes, and what its cells replay in place of computing."""

import re
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config.base import DELAYS, MAX_BATCH, MAX_WORKERS, TIMES, Duration, Rate, Settings, absent, quantity
from worldsize.config.network import NetworkSettings

DELAY = "a rank and a time such as 3:20ms"
MAX_HOSTS = 256
"""Of a rehearsal: each is a process of this machine, and 64 on two cores kept 0.38 of their times."""


class SlowRank(Settings):
    """A rank that computes for longer than was measured."""

    rank: int = Field(ge=0, le=MAX_WORKERS)
    delay_s: float = Field(gt=0)
    """Added to each of its steps."""


class ReplaySettings(Settings):
    """What the cells of a rehearsal replay; the times themselves are in replay.json of its run folder."""

    run: str
    """Name of the run that was measured."""
    parameters: int = Field(ge=1)
    parameter_bytes: int = Field(ge=1)
    buffer_bytes: int = Field(ge=0)
    gradient_tensors: int = Field(ge=1)
    gradient_bytes: int | None = None
    slow_ranks: tuple[SlowRank, ...] = ()

    def delay_s(self, rank: int) -> float:
        """What was planted on a rank, in each of its steps."""
        return sum(slow.delay_s for slow in self.slow_ranks if slow.rank == rank)


class RehearseSettings(NetworkSettings):
    """What `worldsize rehearse` takes beside the run that it replays."""

    hosts: Annotated[int, Field(ge=2, le=MAX_HOSTS)]
    """Number of emulated hosts, one worker on each (Linux, root). They are network namespaces of this machine."""
    link: Rate | None = absent("those of RUN")
    """Bandwidth of the link of each of --hosts, such as 1gbit, 100mbit or unlimited."""
    link_latency: Duration | None = absent("that of RUN")
    """Latency added to the link of each of --hosts, such as 200us. Each packet that leaves a host is
    delayed by it."""
    strategies: tuple[str, ...] | None = absent("those of RUN with several processes", min_length=1)
    """Strategies (ways to synchronise gradients), comma-separated; see docs/strategies.md."""
    batch_size: int | None = absent("that of RUN, if it has only one", ge=1, le=MAX_BATCH)
    budget: Duration | None = absent("90s, unless steps are given", allowed="a time such as 90s or 5min")
    """Time budget of the whole command."""
    steps: int | None = absent("as many as the budget allows", ge=1)
    """Time at most K steps of each cell (configuration), in whole blocks."""
    slow_rank: tuple[str, ...] = absent("none", default=(), allowed="RANK:TIME, ranks from 0")
    """Plant a straggler: this rank computes for longer in each step, such as 3:20ms. May be given again."""

    @field_validator("link")
    @classmethod
    def _unlimited(cls, link: str | None) -> str | None:
        return link  # not to be taken for the absent one, which is that of the run

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.budget is not None and quantity(self.budget, TIMES, "a time such as 90s or 5min", "budget") == 0:
            raise ValueError(f"budget: {self.budget!r} was given; nothing can be measured in no time")
        for slow in self.slow_ranks:
            if slow.rank >= self.hosts:
                raise ValueError(
                    f"slow_rank: rank {slow.rank} was given with {self.hosts} hosts; 0 to {self.hosts - 1} are allowed"
                )
        return self

    @property
    def slow_ranks(self) -> tuple[SlowRank, ...]:
        """The planted stragglers. Raises ValueError for what cannot be read."""
        return tuple(map(_slow_rank, self.slow_rank))


def _slow_rank(text: str) -> SlowRank:
    found = re.fullmatch(r"([0-9]{1,7}):(.+)", text.strip())
    if found is None:
        raise ValueError(f"slow_rank: {text!r} was given; {DELAY} is allowed")
    delay_s = quantity(found[2], DELAYS, DELAY, "slow_rank")
    if delay_s == 0:
        raise ValueError(f"slow_rank: {text!r} was given; a time above 0 such as 20ms is allowed")
    return SlowRank(rank=int(found[1]), delay_s=delay_s)
