"""Settings of the network: this machine as it is, or emulated hosts; and of the collective benchmark."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from worldsize.config.base import DELAYS, RATES, TIMES, Bytes, Duration, Rate, Settings, absent, quantity
from worldsize.traits import COLLECTIVES

Backend = Literal["auto", "gloo", "nccl"]
DEFAULT_BUDGET_S = 20.0


class Hosts(Settings):
    """Emulated hosts: how many, and how each is linked to the switch between them (launch/hosts.py)."""

    count: int = Field(ge=2)
    rate_bits_per_s: int | None = Field(default=None, ge=1_000)
    """Of each link, in each direction; None is as fast as the kernel goes."""
    latency_s: float | None = Field(default=None, gt=0)
    """Added to each packet that leaves a host; needs the kernel's netem."""

    @property
    def payload_bytes_per_s(self) -> float | None:
        """What TCP over Ethernet with an MTU of 1,500 can carry: rated × 1448/1514 (method.md §12)."""
        return None if self.rate_bits_per_s is None else self.rate_bits_per_s / 8 * 1448 / 1514


class NetworkSettings(Settings):
    """Where the workers are put: on this machine's loopback, or on emulated hosts."""

    hosts: Annotated[int, Field(ge=2)] | Literal["auto"] | None = absent("off")
    """Emulate K hosts in network namespaces, one worker each (Linux, root); auto: if permitted. None is the machine
    as it is."""
    link: Rate | None = absent("unlimited")
    """Bandwidth of each emulated link, such as 1gbit or 100mbit."""
    link_latency: Duration | None = absent("0")
    """Latency added to each emulated link, such as 200us. Each packet that leaves an emulated host is delayed by it."""

    @model_validator(mode="after")
    def _links_belong_to_hosts(self) -> Self:
        if self.hosts is None and (self.link or self.link_latency):
            raise ValueError("link and link_latency belong to emulated hosts: give hosts as well")
        self._links()
        return self

    def _links(self) -> tuple[int | None, float | None]:
        rate = (
            None if self.link is None else round(quantity(self.link, RATES, "a rate such as 1gbit or 100mbit", "link"))
        )
        delay = (
            None
            if self.link_latency is None
            else quantity(self.link_latency, DELAYS, "a delay such as 200us", "link_latency")
        )
        return rate, delay

    @property
    def emulated(self) -> Hosts | None:
        """The emulated hosts, if any."""
        if self.hosts is None or self.hosts == "auto":
            return None
        rate, delay = self._links()
        return Hosts(count=self.hosts, rate_bits_per_s=rate, latency_s=delay)


class CommSettings(NetworkSettings):
    """What `worldsize comm` measures."""

    collectives: tuple[str, ...] = Field(default=COLLECTIVES, min_length=1)
    """Collectives to benchmark, comma-separated."""
    world_size: int = Field(default=2, ge=1)
    top_bytes: Bytes = Field(default=16 * 2**20, ge=1024)
    """Largest message size, such as 64MiB; the smallest is 1 KiB."""
    budget: Duration | None = absent("20s, unless samples are given", allowed="a time such as 20s or 2min")
    """Time budget of the whole command. The start of the workers is part of it. None is 20 s, or as long as it
    takes where `samples` are given."""
    samples: int | None = absent("as many as the budget permits", ge=1)
    """Take K samples of each size. They are taken in rounds over all sizes; None is as many as the budget permits, most
    where they vary most."""
    backend: Backend = "auto"
    threads_per_worker: int | None = absent("cores / workers", ge=1)

    @property
    def budget_s(self) -> float | None:
        """`budget` in seconds; None is without bound."""
        if self.budget is None:
            return DEFAULT_BUDGET_S if self.samples is None else None
        return quantity(self.budget, TIMES, "a time such as 20s or 2min")

    @model_validator(mode="after")
    def _readable_budget(self) -> Self:
        try:
            seconds = self.budget_s
        except ValueError as error:
            raise ValueError(f"budget: {error}") from None
        if seconds == 0:
            raise ValueError(f"budget: {self.budget!r} was given; a time above 0 such as 20s is allowed")
        return self

    @model_validator(mode="after")
    def _known_collectives(self) -> Self:
        for name in self.collectives:
            if name not in COLLECTIVES:
                raise ValueError(f"collectives: {name!r} was given; {', '.join(COLLECTIVES)} are allowed")
        return self
