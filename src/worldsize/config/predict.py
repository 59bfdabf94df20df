"""Settings of a forecast: what to predict from a run folder that did not measure it."""

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from worldsize.config.base import DELAYS, MAX_BATCH, MAX_WORKERS, RATES, Duration, Rate, Settings, absent, quantity

EACH = "as many as were measured, or more"
MAX_BUCKET_MB = 1e6
"""Larger buckets hold all of any model."""


class PredictSettings(Settings):
    """What `worldsize predict` predicts."""

    world_sizes: tuple[int, ...] | None = absent(
        "2, 4, 8 and 16 times the largest measured", allowed=EACH, min_length=1
    )
    """World sizes (numbers of workers N), comma-separated."""
    strategies: tuple[str, ...] | None = absent("those measured with several workers", min_length=1)
    """Strategies, comma-separated, measured in the run or not. Those of a script cannot be changed."""
    batch_size: int | None = absent("that of the fastest configuration", ge=1, le=MAX_BATCH)
    """Local batch b: samples per worker per step. One that was not measured lies on a line through those that were."""
    bucket_mb: Annotated[float, Field(gt=0, le=MAX_BUCKET_MB)] | Literal["auto"] | None = absent("that of the run")
    """Bucket size of ddp and bucketed, in MB (10^6 bytes); auto plans it from the measured link. None is that of the
    run."""
    link: Rate | None = absent("that of the run")
    """Bandwidth of the link of each host, such as 10gbit; the run must have one worker on each of several hosts."""
    link_latency: Duration | None = absent("that of the run")
    """Latency that each link adds, such as 50us; the measured overhead of the software is kept."""

    @field_validator("strategies")
    @classmethod
    def _one_by_one(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """`--strategy ddp,bucketed` comes as one."""
        if names is None:
            return None
        found = tuple(dict.fromkeys(part.strip() for name in names for part in name.split(",") if part.strip()))
        if not found:
            raise ValueError("no strategy was given; names separated by commas are allowed")
        return found

    @field_validator("world_sizes")
    @classmethod
    def _each_once(cls, sizes: tuple[int, ...] | None) -> tuple[int, ...] | None:
        return None if sizes is None else tuple(sorted(set(sizes)))

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for value in self.world_sizes or ():
            if not 1 <= value <= MAX_WORKERS:
                raise ValueError(f"world_sizes: {value} was given; each must be between 1 and {MAX_WORKERS}")
        rate, _ = self.rate_bits_per_s, self.latency_s
        if rate is not None and rate < MIN_RATE:
            raise ValueError(f"link: {self.link!r} was given; at least 1kbit is allowed")
        return self

    @property
    def rate_bits_per_s(self) -> float | None:
        """`link` in bits/s."""
        return None if self.link is None else quantity(self.link, RATES, "a rate such as 1gbit or 100mbit", "link")

    @property
    def latency_s(self) -> float | None:
        """`link_latency` in seconds."""
        if self.link_latency is None:
            return None
        return quantity(self.link_latency, DELAYS, "a delay such as 200us", "link_latency")


MIN_RATE = 1_000
"""Bits/s; slower links are a slip of the pen."""
