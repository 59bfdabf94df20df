"""The lines that each rank appends as it trains, a step and its collectives; and steps that are on no such line."""

from pydantic import Field

from worldsize.results.base import Record

MAX_DRIFT = 1e-4
"""How much two clocks can drift apart per second without being aligned: two quartzes of 50 ppm each."""
NOT_ALIGNED_NS = round(MAX_DRIFT * 1e18)
"""The error of clocks that were never compared: what they may have drifted apart in 30 years."""

ENDS = (
    "data_wait_end_s",
    "copy_end_s",
    "forward_end_s",
    "backward_end_s",
    "synchronise_end_s",
    "optimizer_end_s",
)
"""The marks at which the phases of a step end, in order."""
PHASES = {
    "data_wait": "data_wait_s",
    "copy": "copy_s",
    "forward": "forward_s",
    "backward": "backward_s",
    "after_backward": "backward_s",
    "optimizer": "optimizer_s",
    "other": "other_s",
    "unknown": "other_s",
    "evaluation": "evaluation_s",
    "checkpoint": "checkpoint_s",
    "restart": "restart_s",
    "logging": "logging_s",
    "garbage": "garbage_s",
}
"""What a stretch of a step can be, in a loop of the user's own, and the part of the step that it counts to.

After the last gradient of a backward its rank computes nothing (`after_backward`); nor does it in `other`, which is
what the loop does beside, and in what has a name: an evaluation, a checkpoint, a loader that begins anew, what is
printed, garbage that is collected. `unknown` takes no time; it says that some collectives were not recorded."""

OF_SOME_RANKS = "_of_some_ranks"
"""Ends the kind of a message in a group of fewer ranks than there are: the others take no part in it."""


def _absent(value: object) -> bool:
    return value is None


class StepRecord(Record):
    """One line of cells/<cell>/rank<k>.jsonl: one step of one rank, on its own clock."""

    session: int
    """0 for the first start of the study, 1 for the first --resume …"""
    block: int
    """Which turn of this cell; ratios are taken between cells within the same (session, block)."""
    launch: int = 0
    """How often the workers of this cell had been started before in this session: memory and cores are drawn anew."""
    step: int
    """Steps of this cell so far, warm-up included: in this session, or in a training of epochs in all of them."""
    epoch: int
    timed: bool
    """False for warm-up steps."""
    samples: int
    """Samples of this process in this step."""
    loss: float | None
    """Mean training loss over the samples of this process; None where it was not finite (JSON has no NaN)."""
    accuracy: float | None = None
    """Share of the training samples of this process that were classified right, 0 to 1."""
    start_ns: int
    """Start of the step on the rank's monotonic clock."""
    step_s: float
    """From start to end."""
    data_wait_end_s: float | None = None
    """When its phases ended, in order, each after its start; None for one that was not marked. What lies between the
    last of them and the end of the step is bookkeeping. How these become parts of a step is analysis (method.md §2)."""
    copy_end_s: float | None = None
    forward_end_s: float | None = None
    backward_end_s: float | None = None
    synchronise_end_s: float | None = None
    optimizer_end_s: float | None = None
    last_gradient_s: float | None = None
    """When backward had computed its last gradient: from there on it only waits."""
    phases: list[str] | None = Field(default=None, exclude_if=_absent)
    """What the step consisted of, in order, where a loop of the user's own has several of a kind, as with accumulated
    gradients: names of PHASES. Then none of the ends above is there. Left out of a line that has none."""
    phase_ends_s: list[float] | None = Field(default=None, exclude_if=_absent)
    """When each of them ended, after the start of the step."""
    synchronised: bool = True
    """False for the steps without synchronisation that are paired with the others; they are never `timed`."""
    clock_offset_ns: int = 0
    """What to add to this rank's clock to get rank 0's: as measured before the turn, in its last step after it."""
    clock_error_ns: int = 0
    """How wrong the offset can be."""
    reference_s: float | None = None
    """How long the short computation took that came right after this step, and is no part of any (method.md §8); None
    where there was none."""


class SpanRecord(Record):
    """One line of cells/<cell>/rank<k>.spans.jsonl: the collectives of one step of one rank, as columns."""

    session: int
    step: int
    kind: list[str]
    """all_reduce, broadcast, gather, scatter …; of a smaller group with OF_SOME_RANKS at its end."""
    payload_bytes: list[int]
    blocking: list[bool] | None = None
    """Whether the rank computes nothing until it is done; None in lines of schema 1."""
    ready_s: list[float | None] | None = None
    """When the bucket had all of its gradients; None of a message that is no bucket, and in lines of schema 1."""
    awaited_s: list[float | None] | None = Field(default=None, exclude_if=_absent)
    """From when on the rank computed nothing until it was done, of one that did not block it from the start; None where
    it went on to compute. Left out of a line in which it waited for none so."""
    issued_s: list[float]
    """Seconds after `start_ns` of the step, as all times here."""
    done_s: list[float]


class UnobservedBlock(Record):
    """Steps of a cell without instruments, timed right after its block with them."""

    session: int
    block: int
    step_s: list[float]
    """Each step ended by its slowest rank."""


class RankActivity(Record):
    """What the thread that trains did in the timed steps of one block; in sum, of this rank."""

    steps: int
    cpu_s: float
    """It computed, garbage collection and all else that takes a core included."""
    queued_s: float | None
    """It could have gone on, and had no core; None where the system does not tell."""
    collected_s: float
    """Python collected garbage, on whichever thread."""
    most_collected_s: float
    """Of that, in the step that had most of it."""
    major_faults: int
    """Pages that it had to wait for, from a disk."""


class BlockActivity(Record):
    """The same of all ranks of a cell, as columns: a number for each rank, in order."""

    session: int
    block: int
    steps: int
    cpu_s: list[float]
    queued_s: list[float | None]
    collected_s: list[float]
    most_collected_s: list[float]
    major_faults: list[int]


class BlockConditions(Record):
    """What else went on while a block of steps was timed; means over its length."""

    session: int
    block: int
    others_cores: float
    """Cores, of those that the study may use, that processes of others used; vague over short blocks."""
    stolen_cores: float
    """Cores that were wanted here and given to other virtual machines by the hypervisor."""
    frequency_hz: float | None = None
    """Mean clock frequency of the cores at the end; None where the machine does not tell."""
