"""What is known of a strategy without running it, and without torch: a row for each (method.md §4, §9).

Everything below `strategies/` that must tell one way to synchronise from another reads it here, never by a name:
which links to measure, what to advise, the peak to compare with, colours. It stands apart from the classes because
a report is made without torch, and on machines that have none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from worldsize.errors import FactoryError
from worldsize.sending import (
    Buckets,
    Gradients,
    Sent,
    sent_by_ddp,
    sent_by_none,
    sent_in_buckets,
    sent_one_by_one,
    sent_through_root,
)

COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "broadcast", "gather", "scatter")
"""Those that `worldsize comm` times."""
ROOTED = frozenset(("gather", "scatter", "broadcast"))
"""Those whose bytes all pass through one rank."""


@dataclass(frozen=True)
class Sizes:
    """What one worker's model and local batch take, in bytes."""

    parameter_bytes: int
    gradient_bytes: int
    """S: the gradients of all trained parameters."""
    largest_gradient_bytes: int
    buffer_bytes: int
    input_bytes: int
    """Inputs of one worker in one step."""
    output_bytes: int
    """Outputs of one worker in one step."""


class WireBytes(BaseModel):
    """Bytes per step on the wire, by the formulas of method.md §4."""

    model_config = ConfigDict(extra="forbid")

    payload_bytes: int
    """S: bytes of all gradients that are synchronised per step."""
    busiest_rank_bytes: int
    """Bytes that the busiest rank sends (it receives as many)."""
    other_rank_bytes: int
    """Bytes that every other rank sends (it receives as many)."""
    formula: str


class TraitsRecord(BaseModel):
    """What a run folder keeps of them: all but the formulas."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    collectives: tuple[str, ...]
    """Between processes, as `worldsize comm` names them; none where nothing travels between processes."""
    overlaps: bool = False
    """Whether gradients travel while backward goes on."""
    buckets: bool = False
    """Whether they travel in buckets, whose size `--bucket-mb` sets."""
    exact: bool = True
    """Whether every rank applies the mean of all gradients in every step; lossy otherwise."""

    @property
    def rooted(self) -> bool:
        """Whether all that travels passes through one rank."""
        return bool(self.collectives) and ROOTED.issuperset(self.collectives)


class Traits(TraitsRecord):
    """One row."""

    does: str = ""
    """How it synchronises, in a few words: for the help of the commands."""
    needs_every_gradient: bool = False
    """Whether a step fails that leaves a trained parameter without a gradient, unless it looks for such parameters."""
    wire: Callable[[int, Sizes], WireBytes]
    """Bytes per step on the wire in a world of N > 1: (N, sizes)."""
    sends: Callable[[Gradients, Buckets, float], list[Sent]] | None = None
    """What a step sends in a world of N > 1: (gradients, buckets, length of backward in s); None where no rule is
    known, as of workers in one process."""
    copies: Callable[[int, int, Sizes], int] | None = None
    """Bytes that a rank holds beside model, gradients and optimizer: (N, rank, sizes); None is 0."""

    def __init__(self, **values: Any) -> None:
        """Raises FactoryError: a class of the user's own says its traits."""
        try:
            super().__init__(**values)
        except ValidationError as error:
            first = error.errors()[0]
            key, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
            given = "" if first["type"] == "missing" else f" {first['input']!r} was given;"
            raise FactoryError(f"traits of a strategy: {key}:{given} {said[:1].lower()}{said[1:]}") from None

    @field_validator("collectives")
    @classmethod
    def _known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in value if name not in COLLECTIVES]:
            raise ValueError(f"{unknown[0]!r} is none of {', '.join(COLLECTIVES)}")
        return value

    def record(self) -> TraitsRecord:
        """What a run folder keeps."""
        return TraitsRecord(**{name: getattr(self, name) for name in TraitsRecord.model_fields})

    def wire_bytes(self, world_size: int, sizes: Sizes) -> WireBytes:
        """Bytes per step on the wire; in a world of one nothing travels."""
        if world_size == 1:
            return WireBytes(payload_bytes=0, busiest_rank_bytes=0, other_rank_bytes=0, formula="0")
        return self.wire(world_size, sizes)

    def copied_bytes(self, world_size: int, rank: int, sizes: Sizes) -> int:
        """Bytes that a rank holds beside model, gradients and optimizer."""
        return self.copies(world_size, rank, sizes) if self.copies is not None else 0


def ring(world_size: int, sizes: Sizes, buffer_bytes: int = 0) -> WireBytes:
    """What each rank sends in a ring all-reduce of the gradients; buffers pass each rank once (method.md §4)."""
    size = round(2 * (world_size - 1) / world_size * sizes.gradient_bytes) + buffer_bytes
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=size,
        other_rank_bytes=size,
        formula="2(N−1)/N·S + buffers" if buffer_bytes else "2(N−1)/N·S",
    )


def ring_and_buffers(world_size: int, sizes: Sizes) -> WireBytes:
    """The same, and rank 0's buffers in each forward: they leave it once and reach every other rank once."""
    return ring(world_size, sizes, sizes.buffer_bytes)


def through_root(world_size: int, sizes: Sizes) -> WireBytes:
    """(N−1)·S into and out of rank 0, S into and out of every other rank."""
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=(world_size - 1) * sizes.gradient_bytes,
        other_rank_bytes=sizes.gradient_bytes,
        formula="rank 0: (N−1)·S; others: S",
    )


def replicas(world_size: int, sizes: Sizes) -> WireBytes:
    """The root's bytes: parameters, buffers and inputs out; gradients and outputs in."""
    out = (world_size - 1) * (sizes.gradient_bytes + sizes.buffer_bytes + sizes.input_bytes)
    return WireBytes(
        payload_bytes=sizes.gradient_bytes,
        busiest_rank_bytes=out,
        other_rank_bytes=sizes.gradient_bytes + sizes.output_bytes,
        formula="root sends (N−1)·(S + buffers + inputs); others send S + outputs",
    )


def nothing(world_size: int, sizes: Sizes) -> WireBytes:
    """No byte."""
    return WireBytes(payload_bytes=0, busiest_rank_bytes=0, other_rank_bytes=0, formula="0")


def _gradients_again(world_size: int, rank: int, sizes: Sizes) -> int:
    """Each gradient a second time, in its bucket; around one worker as well."""
    return sizes.gradient_bytes


def _gradients_to_send(world_size: int, rank: int, sizes: Sizes) -> int:
    """The same, where there is somebody to send them to."""
    return sizes.gradient_bytes if world_size > 1 else 0


def _one_of_each_rank(world_size: int, rank: int, sizes: Sizes) -> int:
    """On rank 0 that of each rank of one gradient at a time, the largest of them at most."""
    return world_size * sizes.largest_gradient_bytes if rank == 0 and world_size > 1 else 0


def _replicas_here(world_size: int, rank: int, sizes: Sizes) -> int:
    """The other replicas, and the gradients of all of them before they are added up."""
    replica_bytes = sizes.parameter_bytes + sizes.buffer_bytes
    return (world_size - 1) * replica_bytes + world_size * sizes.gradient_bytes if world_size > 1 else 0


TRAITS: dict[str, Traits] = {
    "single": Traits(does="one worker, with nothing to synchronise", collectives=(), wire=nothing, sends=sent_by_none),
    "data-parallel": Traits(
        does="torch's DataParallel: one process drives all devices (on a CPU threads)",
        collectives=(),
        wire=replicas,
        copies=_replicas_here,
    ),
    "gather-scatter": Traits(
        does="rank 0 gathers all gradients, averages them, and scatters the result",
        collectives=("gather", "scatter"),
        wire=through_root,
        sends=sent_through_root,
        copies=_one_of_each_rank,
    ),
    "all-reduce": Traits(
        does="one blocking all-reduce per gradient, after backward",
        collectives=("all-reduce",),
        wire=ring,
        sends=sent_one_by_one,
    ),
    "ddp": Traits(
        does="torch's DistributedDataParallel: all-reduces buckets during backward",
        collectives=("all-reduce", "broadcast"),
        overlaps=True,
        buckets=True,
        needs_every_gradient=True,
        wire=ring_and_buffers,
        sends=sent_by_ddp,
        copies=_gradients_again,
    ),
    "bucketed": Traits(
        does="the same, in Python of our own that can be read",
        collectives=("all-reduce",),
        overlaps=True,
        buckets=True,
        wire=ring,
        sends=sent_in_buckets,
        copies=_gradients_to_send,
    ),
}
"""Those that come with worldsize, in the order in which tables and charts show them."""
BASELINE_STRATEGY = "single"
"""One worker that trains the model as it is: the baseline of every speed-up where it was run (method.md §6)."""
MULTI_WORKER_STRATEGIES = tuple(name for name in TRAITS if name != BASELINE_STRATEGY)
OVERLAPPING = tuple(name for name, traits in TRAITS.items() if traits.overlaps and traits.exact)
"""Those that advice proposes in place of one that waits for the end of backward; the usual one first."""
BUCKETED = tuple(name for name, traits in TRAITS.items() if traits.buckets and traits.exact)


def traits_of(strategy: str, own: TraitsRecord | None = None) -> TraitsRecord:
    """Traits of a strategy: those of the user's `own` class, else its row in the table.

    Of one that is in neither (a run from before they were recorded) the usual is assumed: an all-reduce after backward.
    """
    return own or TRAITS.get(strategy) or TraitsRecord(collectives=("all-reduce",))
