"""The lines that each rank appends as it trains, a step and its collectives; and steps that are on no such line."""

from worldsize.results.base import Record

MOST_DRIFT = 1e-4
"""How much two clocks can drift apart per second that nobody has aligned them: two quartzes of 50 ppm each."""


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
    """Begin of the step on the rank's monotonic clock."""
    step_s: float
    data_wait_s: float
    copy_s: float
    forward_s: float
    backward_s: float
    exposed_sync_s: float
    optimizer_s: float
    other_s: float
    comm_s: float
    """Length of the union of the [issued, done] intervals of this step (method.md §3)."""
    overlapped_s: float
    synchronised: bool = True
    """False for the steps without exchange that are paired with the others; they are never `timed`."""
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
    """all_reduce, broadcast, gather, scatter …"""
    payload_bytes: list[int]
    issued_s: list[float]
    """Seconds after `start_ns` of the step."""
    done_s: list[float]


class UnobservedBlock(Record):
    """Steps of a cell without instruments, timed right after its block with them."""

    session: int
    block: int
    step_s: list[float]
    """Each step ended by its slowest rank."""


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
