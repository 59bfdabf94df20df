"""Settings of the network: this machine as it is, or emulated hosts; and of the collective benchmark."""

import re
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config.base import DELAYS, RATES, TIMES, Bytes, Duration, Rate, Settings, absent, quantity
from worldsize.traits import COLLECTIVES

Backend = Literal["auto", "gloo", "nccl"]
DEFAULT_BUDGET_S = 20.0
RATE = "a rate such as 1gbit or 100mbit"
UNLIMITED = "unlimited"
SLOWEST_BITS_PER_S, FASTEST_BITS_PER_S = 1_000, 1_000_000_000_000
"""What a link may have: below, a packet takes seconds; above, nothing that a kernel emulates."""


BURST_S = 0.001
"""What an emulated link may send at once after a pause, as time at its rate. Short, or small messages would not be
shaped at all; not shorter, or a timer that comes late costs rate."""
MIN_BURST_BYTES = 10 * 1514


class SlowestLink(NamedTuple):
    """What emulated links let a collective carry, and which of them it is that carries no more."""

    bytes_per_s: float
    """TCP payload, counted as a bus bandwidth is; of a gather or scatter, all that passes the root's link."""
    host: int | None
    """None where all links are alike."""


class Hosts(Settings):
    """Emulated hosts: how many, and how each is linked to the switch between them (launch/hosts.py)."""

    count: int = Field(ge=2)
    rate_bits_per_s: int | None = Field(default=None, ge=1_000)
    """Of each link, in each direction; None is as fast as the kernel goes."""
    latency_s: float | None = Field(default=None, gt=0)
    """Added to each packet that leaves a host; needs the kernel's netem."""
    own_rates: dict[int, int] = Field(default_factory=dict)
    """Bits per second of the links of single hosts (counted from 0) that have another rate."""

    def rate_of(self, host: int) -> int | None:
        """Bits per second of the link of a host; None is as fast as the kernel goes."""
        return self.own_rates.get(host, self.rate_bits_per_s)

    def payload_of(self, host: int) -> float | None:
        """The same in bytes per second of what TCP can carry."""
        rate = self.rate_of(host)
        return None if rate is None else payload_bytes_per_s(rate)

    def slowest(self, world_size: int, *, rooted: bool) -> SlowestLink | None:
        """The link that bounds a collective between so many workers, one on each host from 0 on (method.md §12).

        Over each link of a ring, and to each receiver of a tree, go the bytes that busbw counts: the slowest link
        bounds them. Where it is `rooted`, a gather or scatter, all of them pass the link of host 0, and one of N−1
        shares that of each other host. None where no link has a rate.
        """
        most = {host: rate for host in range(world_size) if (rate := self.payload_of(host)) is not None}
        if rooted:
            most = {host: rate if host == 0 else (world_size - 1) * rate for host, rate in most.items()}
        if not most:
            return None
        host = min(most, key=lambda each: most[each])
        alike = len({self.rate_of(each) for each in range(world_size)}) == 1
        return SlowestLink(most[host], None if alike else host)

    @property
    def payload_bytes_per_s(self) -> float | None:
        """What TCP can carry over each link that has no rate of its own: rated × 1448/1514 (method.md §12)."""
        return None if self.rate_bits_per_s is None else payload_bytes_per_s(self.rate_bits_per_s)


def burst_bytes(rate_bits_per_s: int) -> int:
    """What an emulated link of a rate may send at once after a pause."""
    return max(MIN_BURST_BYTES, round(rate_bits_per_s / 8 * BURST_S))


def payload_bytes_per_s(rate_bits_per_s: int) -> float:
    """What TCP over Ethernet with an MTU of 1,500 makes of a rate: × 1448/1514."""
    return rate_bits_per_s / 8 * 1448 / 1514


class NetworkSettings(Settings):
    """Where the workers are put: on this machine's loopback, or on emulated hosts."""

    hosts: Annotated[int, Field(ge=2)] | Literal["auto"] | None = absent("off")
    """Emulate K hosts in network namespaces, one worker each (Linux, root); auto: one per worker, if permitted. None is
    the machine as it is."""
    link: Rate | None = absent(UNLIMITED)
    """Bandwidth of the link of each of --hosts, such as 1gbit, 100mbit or unlimited."""
    link_latency: Duration | None = absent("0")
    """Latency added to the link of each of --hosts, such as 200us. Each packet that leaves a host is
    delayed by it."""
    slow_link: tuple[str, ...] = absent("none", default=(), allowed="HOST:RATE, hosts from 0")
    """Give the link of one of --hosts a rate of its own, such as 2:100mbit. May be given again."""

    @field_validator("link")
    @classmethod
    def _unlimited(cls, link: str | None) -> str | None:
        return None if link == UNLIMITED else link

    @model_validator(mode="after")
    def _links_belong_to_hosts(self) -> Self:
        if self.hosts is None and (self.link or self.link_latency or self.slow_link):
            raise ValueError("link and link_latency belong to emulated hosts: give hosts as well")
        self._links()
        for host in self._own_rates():
            if isinstance(self.hosts, int) and host >= self.hosts:
                raise ValueError(
                    f"slow_link: host {host} was given with {self.hosts} hosts; 0 to {self.hosts - 1} are allowed"
                )
        return self

    def _own_rates(self) -> dict[int, int]:
        return dict(map(_own_rate, self.slow_link))

    def _links(self) -> tuple[int | None, float | None]:
        rate = None if self.link in (None, UNLIMITED) else bits_per_s(self.link, RATE, "link")
        delay = (
            None
            if self.link_latency is None
            else quantity(self.link_latency, DELAYS, "a delay such as 200us", "link_latency")
        )
        return rate, delay or None

    @property
    def emulated(self) -> Hosts | None:
        """The emulated hosts, if any."""
        if self.hosts is None or self.hosts == "auto":
            return None
        rate, delay = self._links()
        return Hosts(count=self.hosts, rate_bits_per_s=rate, latency_s=delay, own_rates=self._own_rates())


def bits_per_s(text: str, allowed: str, name: str) -> int:
    """A rate that a link can have; raise ValueError for anything else."""
    rate = round(quantity(text, RATES, allowed, name))
    if not SLOWEST_BITS_PER_S <= rate <= FASTEST_BITS_PER_S:
        raise ValueError(f"{name}: {text!r} was given; 1kbit to 1000gbit is allowed")
    return rate


def _own_rate(text: str) -> tuple[int, int]:
    allowed = "a host and a rate such as 2:1gbit"
    found = re.fullmatch(r"([0-9]{1,7}):(.+)", text.strip())
    if found is None:
        raise ValueError(f"slow_link: {text!r} was given; {allowed} is allowed")
    return int(found[1]), bits_per_s(found[2], allowed, "slow_link")


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
    test_links: bool = False
    """Test the links of --hosts first: rate, bursts, round trip. What they carry while all hosts send is in
    the record (method.md §15)."""

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
