"""What is known of a strategy without running it, and without torch: a row for each (method.md §4, §9).

Everything below `strategies/` that must tell one way to synchronise from another reads it here, never by a name:
which links to measure, what to advise, the peak to compare with, colours. It stands apart from the classes because
a report is made without torch, and on machines that have none.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from worldsize.errors import FactoryError
from worldsize.sending import (
    INT8_BLOCK,
    Buckets,
    Gradients,
    Messages,
    Sent,
    as_they_are,
    halved,
    in_two,
    quantised,
    sent_by_ddp,
    sent_by_none,
    sent_in_buckets,
    sent_one_by_one,
    sent_through_root,
)
from worldsize.wire import (
    Sizes,
    WireBytes,
    gathered_and_scattered,
    gradients_again,
    gradients_and_int8,
    gradients_and_low_rank,
    gradients_and_narrow,
    gradients_to_send,
    in_blocks,
    in_blocks_and_buffers,
    low_rank,
    low_rank_and_buffers,
    low_rank_bytes,
    narrow_ring,
    narrow_ring_and_buffers,
    nothing,
    one_of_each_rank,
    replicas,
    replicas_here,
    ring,
    ring_and_buffers,
    ring_now_and_then,
    through_root,
    weights_and_anchor,
    weights_packed,
    whole_for_a_while,
)

BytesFormula = Callable[[int, Sizes], WireBytes]
"""Bytes per step on the wire in a world of N > 1: (N, sizes)."""
COLLECTIVES = ("all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "gather", "scatter")
"""Those that `worldsize comm` times."""
ROOTED = frozenset(("gather", "scatter", "broadcast"))
"""Those whose bytes all pass through one rank."""


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
    travels: Literal["gradients", "weights", "shards"] = "gradients"
    """What ranks exchange: gradients, so that their weights are always alike; weights, which are alike only after they
    were averaged; or shards, of which each rank keeps its own."""
    first_steps: str = ""
    """Name of the setting for the number of first steps that are synchronised in another way; '' if none are."""
    period: str = ""
    """Name of the setting for the steps from one exchange to the next; '' if ranks exchange in every step."""

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
    wire: BytesFormula
    sends: Callable[[Gradients, Buckets, float], list[Sent]] | None = None
    """What a step sends in a world of N > 1: (gradients, buckets, length of backward in s); None where no rule is
    known, as of workers in one process."""
    messages: Messages = as_they_are
    """Messages of a bucket, for strategies with buckets: what `--bucket-mb auto` plans with."""
    sent_bytes: Callable[[tuple[int, ...], int], int] | None = None
    """What `messages` counts of a gradient: (its shape, `powersgd_rank`); None: its bytes."""
    by_default: bool = True
    """Whether a study runs it where no strategies are named."""
    step_error: float | None = None
    """Of a lossy one: how far the averaged gradient of a step may be off (relative norm, all parameters); None: there
    is no bound for one step."""
    feedback: bool = False
    """Whether a rank adds what a step lost to the gradients of the next: then the sum over steps is right."""
    plain_mean: bool = True
    """Of one that exchanges weights: whether they become the mean of the ranks' weights, and nothing moves them on."""
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


def _lossy_ddp(how: str, messages: Messages, wire: BytesFormula, step_error: float | None, **more: Any) -> Traits:
    """DDP whose buckets travel in fewer bytes."""
    return Traits(
        does=f"ddp with {how}",
        collectives=(*dict.fromkeys(name for name, _ in messages(INT8_BLOCK)), "broadcast"),
        overlaps=True,
        buckets=True,
        exact=False,
        by_default=False,
        needs_every_gradient=True,
        step_error=step_error,
        wire=wire,
        messages=messages,
        **{"sends": partial(sent_by_ddp, messages=messages), "copies": gradients_and_narrow, **more},
    )


def _lossy_buckets(how: str, messages: Messages, wire: BytesFormula, step_error: float | None, **more: Any) -> Traits:
    """Our own buckets in fewer bytes."""
    return Traits(
        does=f"bucketed with {how}",
        collectives=tuple(dict.fromkeys(name for name, _ in messages(INT8_BLOCK))),
        overlaps=True,
        buckets=True,
        exact=False,
        by_default=False,
        step_error=step_error,
        wire=wire,
        messages=messages,
        **{"sends": partial(sent_in_buckets, messages=messages), "copies": gradients_and_narrow, **more},
    )


_INT8: dict[str, Any] = {"feedback": True, "copies": gradients_and_int8}
_LOW_RANK: dict[str, Any] = {
    "feedback": True,
    "first_steps": "powersgd_start_step",
    "sent_bytes": low_rank_bytes,
    "sends": None,
    "copies": gradients_and_low_rank,
}


def _now_and_then(does: str, copies: Callable[[int, int, Sizes], int], **more: Any) -> Traits:
    """Ranks that meet once in a period, with their weights."""
    return Traits(
        does=does,
        collectives=("all-reduce",),
        exact=False,
        travels="weights",
        first_steps="sync_warmup_steps",
        period="sync_every",
        by_default=False,
        wire=ring_now_and_then,
        copies=copies,
        **more,
    )


TRAITS: dict[str, Traits] = {
    "single": Traits(does="one worker, with nothing to synchronise", collectives=(), wire=nothing, sends=sent_by_none),
    "data-parallel": Traits(
        does="torch's DataParallel: one process drives all devices (threads on a CPU)",
        collectives=(),
        wire=replicas,
        copies=replicas_here,
    ),
    "gather-scatter": Traits(
        does="rank 0 gathers all gradients, averages them, and scatters the result",
        collectives=("gather", "scatter"),
        wire=through_root,
        sends=sent_through_root,
        copies=one_of_each_rank,
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
        copies=gradients_again,
    ),
    "bucketed": Traits(
        does="like ddp, in readable Python",
        collectives=("all-reduce",),
        overlaps=True,
        buckets=True,
        wire=ring,
        sends=sent_in_buckets,
        copies=gradients_to_send,
    ),
    "ddp-fp16": _lossy_ddp("gradients compressed to fp16", halved, narrow_ring_and_buffers, 2**-10),
    "ddp-bf16": _lossy_ddp("gradients compressed to bfloat16", halved, narrow_ring_and_buffers, 2**-7),
    "powersgd": _lossy_ddp("low-rank gradients (PowerSGD)", in_two, low_rank_and_buffers, None, **_LOW_RANK),
    "int8": _lossy_ddp("gradients quantised to int8", quantised, in_blocks_and_buffers, 2**-4, **_INT8),
    "bucketed-fp16": _lossy_buckets("gradients compressed to fp16", halved, narrow_ring, 2**-10),
    "bucketed-bf16": _lossy_buckets("gradients compressed to bfloat16", halved, narrow_ring, 2**-7),
    "bucketed-powersgd": _lossy_buckets("low-rank gradients (PowerSGD)", in_two, low_rank, None, **_LOW_RANK),
    "bucketed-int8": _lossy_buckets("gradients quantised to int8", quantised, in_blocks, 2**-4, **_INT8),
    "local-sgd": _now_and_then("each rank takes local steps; weights are averaged every few", weights_packed),
    "diloco": _now_and_then(
        "local-sgd with an outer optimizer on the shared weights", weights_and_anchor, plain_mean=False
    ),
    "fsdp": Traits(
        does="torch's FSDP2: each rank keeps a shard of weights, gradients and optimizer state",
        collectives=("all-gather", "reduce-scatter"),
        overlaps=True,
        travels="shards",
        by_default=False,
        wire=gathered_and_scattered,
        copies=whole_for_a_while,
    ),
}
"""Those that come with worldsize, in the order in which tables and charts show them."""
BASELINE_STRATEGY = "single"
"""One worker that trains the model as it is: the baseline of every speed-up where it was run (method.md §6)."""
ALL_CORES = "all-cores"
"""Label of a cell of one worker that has all cores: what a machine does without further workers (method.md §6)."""
DEFAULT_STRATEGIES = tuple(name for name, traits in TRAITS.items() if traits.by_default)
"""Those of a study that names none: exact, with whole weights on each rank."""
MULTI_WORKER_STRATEGIES = tuple(name for name in DEFAULT_STRATEGIES if name != BASELINE_STRATEGY)
OVERLAPPING = tuple(
    name for name, traits in TRAITS.items() if traits.overlaps and traits.exact and traits.travels == "gradients"
)
"""Those that advice proposes in place of one that waits for the end of backward; the usual one first."""
BUCKETED = tuple(name for name, traits in TRAITS.items() if traits.buckets and traits.exact)

RUNGS = tuple(
    name
    for name, traits in TRAITS.items()
    if traits.buckets and traits.travels == "gradients" and (traits.exact or not traits.needs_every_gradient)
)
"""Those that `--strategies auto` lets race: what overlaps; of the compressed ones those in our own buckets."""


def traits_of(strategy: str, own: TraitsRecord | None = None) -> TraitsRecord:
    """Traits of a strategy: those of the user's `own` class, else its row in the table.

    Of one that is in neither (a run from before they were recorded) the usual is assumed: an all-reduce after backward.
    """
    return own or TRAITS.get(strategy) or TraitsRecord(collectives=("all-reduce",))
