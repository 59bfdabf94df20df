"""Records of the collective benchmark (method.md §5)."""

from typing import Any, Self

from pydantic import Field, model_validator

from worldsize.config import MAX_WORKERS, Hosts
from worldsize.results.base import Record
from worldsize.results.provenance import Provenance
from worldsize.results.records import SCHEMA_VERSION, Estimate, Placement, RankPlace, WarningRecord


class CommSample(Record):
    """One sample of the collective benchmark on one rank (method.md §5)."""

    collective: str
    """all-reduce, reduce-scatter, all-gather, all-to-all, broadcast, gather, scatter, or gather+scatter in turn."""
    size_bytes: int = Field(ge=1)
    """S: all ranks' parts together for all-gather and reduce-scatter, one rank's tensor for the others."""
    begin_ns: int
    """When this rank began the first call, on rank 0's clock."""
    end_ns: int
    """When it had ended the last one."""
    clock_error_ns: int
    """How far off the aligned clock of this rank can be."""
    calls: int = Field(ge=1)
    """Calls back to back that make the sample."""
    wrong_elements: int
    """Elements that came out wrong, over all ranks, when the result was checked."""

    @model_validator(mode="before")
    @classmethod
    def _of_before(cls, values: Any) -> Any:
        """Folders of an earlier version know the seconds per call on each rank, not its start and end."""
        if not isinstance(values, dict) or "time_s" not in values:
            return values
        known = {name: value for name, value in values.items() if name != "time_s"}
        try:
            end_ns = round(values["time_s"] * values["calls"] * 1e9)
        except (TypeError, LookupError, ArithmeticError, ValueError):
            return values  # what is wrong with it is said by the validation that follows
        return {**known, "begin_ns": 0, "end_ns": end_ns, "clock_error_ns": 0}

    @model_validator(mode="after")
    def _takes_time(self) -> Self:
        if self.end_ns <= self.begin_ns:
            raise ValueError("a sample ends before it begins, or takes no time")
        return self


class PeerRate(Record):
    """How fast one rank reaches rank 0."""

    rank: int
    place: RankPlace
    bytes_per_s: float = Field(gt=0, allow_inf_nan=False)
    """There and back, the best of a few."""
    beside_first: bool = False
    """Whether it runs on the host of rank 0, and in the same network."""


class HostLink(Record):
    """The self-test of the link of one emulated host, while all hosts send at once (method.md §15)."""

    host: int
    payload_bytes_per_s: float | None
    """What its rate lets TCP carry, or that of the host it receives from, if less; None without a rate."""
    steady_bytes_per_s: float
    """What arrived."""
    burst: float | None
    """The most that arrived within 100 ms, over what the link is to carry in that time; None without a rate."""
    round_trip_s: float
    """Least of some small messages to the next host and back, with no other traffic."""


class CommRecord(Record):
    """comm/w<N>.json: the collective benchmark of one world size, raw."""

    schema_version: int = SCHEMA_VERSION
    provenance: Provenance
    world_size: int = Field(ge=1, le=MAX_WORKERS)
    placement: Placement
    hosts: Hosts | None = None
    """The emulated hosts, where the workers were on some."""
    ranks: list[list[CommSample]] = Field(min_length=1)
    """The samples of each rank; the k-th of all ranks belong together."""
    peers: list[PeerRate] = Field(default_factory=list)
    """The way of each other rank to rank 0, from three ranks on."""
    links: list[HostLink] = Field(default_factory=list)
    """The self-test of the emulated links, by host; of a rehearsal."""
    warnings: list[WarningRecord] = Field(default_factory=list)

    @model_validator(mode="after")
    def _together(self) -> Self:
        if len({len(samples) for samples in self.ranks}) > 1:
            raise ValueError("ranks have unlike numbers of samples")
        return self


class CommPoint(Record):
    """One size of one collective: a row of the table (method.md §5)."""

    collective: str
    size_bytes: int
    time_s: Estimate
    """Of one call."""
    algbw_gb_per_s: Estimate
    busbw_gb_per_s: Estimate
    """For gather and scatter the rate through the root's link."""
    wrong_elements: int


class CommFit(Record):
    """What one collective makes of the link: its best bandwidth, and the α–β model (method.md §5)."""

    collective: str
    peak_busbw_gb_per_s: float
    alpha_s: float | None = None
    """None where the model describes nothing: R² is too low, or absent because nothing could be fitted."""
    beta_gb_per_s: float | None = None
    segment_s: float | None = None
    """γ, the latency of a further segment of gloo's ring; 0 where the times show none."""
    exponent: int | None = None
    """p: with 1 a call takes the sum of latency and bytes; the larger it is, the nearer to the longer one of both."""
    as_run: str | None = None
    """The collective whose messages are really sent, where that is another one: gloo's reduce-scatter is an
    all-reduce."""
    r_squared: float | None = None
    smallest_bytes: int | None = None
    largest_bytes: int | None = None


class CommReport(Record):
    """What `worldsize comm --json` prints."""

    schema_version: int = SCHEMA_VERSION
    table: list[CommPoint]
    fits: list[CommFit]
    in_turn_s: float | None = None
    """One way of a gather of 1 KiB and the scatter that answers it, in turn; None where not both were timed (§5)."""
    warnings: list[WarningRecord]
    record: CommRecord
    """The raw samples behind the table."""


class AllReduceCost(Record):
    """α, β and γ of all-reduce on a link, for what plans with them (method.md §5)."""

    alpha_s: float
    beta_bytes_per_s: float
    segment_s: float = 0.0
