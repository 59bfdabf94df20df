"""Turns: what a worker is asked to do next, and what it answers.

Cells of a study stay alive and take turns (method.md §8), so a worker does not run through a plan of its own: it
waits for a turn, does it, replies, and waits again without spinning.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Protocol

from pydantic import Field

from worldsize.results.base import Record
from worldsize.results.check_records import RankCheck
from worldsize.results.comm_records import CommSample, HostLink
from worldsize.results.memory_records import DeviceMemory, MemoryParts
from worldsize.results.records import RankPlace, WarningRecord
from worldsize.results.step_records import RankActivity
from worldsize.results.traces import ProfiledRank
from worldsize.results.training_records import Evaluation, GradientTimes, MessageCount, ReplayedTimes
from worldsize.results.verify_records import RankProof
from worldsize.traits import TraitsRecord
from worldsize.wire import WireBytes


class Turn(Record):
    """One thing to do for all ranks of a cell."""

    op: Literal["steps", "epoch", "evaluate", "fit", "verify", "checkpoint", "profile", "collective", "link", "finish"]
    block: int = 0
    count: int = 0
    """How many steps (ops `steps` and `profile`; op `epoch` does so many of its epoch, 0 is all of them), or how many
    global batches are read (op `verify`), or how many calls make the sample (op `collective`)."""
    collective: str | None = None
    """Which collective is called (op `collective`)."""
    size_bytes: int = 0
    """At which size."""
    timed: bool = True
    """False for warm-up."""
    observe: bool = True
    """False runs without instruments: only the step time is taken, and nothing is recorded."""
    warmup: int = 0
    """Steps before the counted ones that are like these, and not timed: a pause leaves cold caches (method.md §8)."""
    anew: bool = False
    """Begin the data anew before the first step, where a loader works ahead: what it has made while everything else
    began would feed the first timed steps, and a loop that waits for its data would not wait."""
    reference_every: int = 0
    """After how many steps comes the short computation that tells of disturbances (method.md §8); 0: never."""
    first_step: int | None = None
    """How many steps of training the cell must have done before, where it matters (protocol *epochs*)."""
    synchronise: bool = True
    """False switches the synchronisation of gradients off."""

    @property
    def trains(self) -> bool:
        """Whether the steps count as training; else they only measure, and leave everything as it was."""
        return self.observe and self.synchronise

    def message(self) -> dict[str, Any]:
        """What travels to a worker in another process: what differs from the defaults."""
        return self.model_dump(exclude_defaults=True)


class Facts(Record):
    """What a rank knows once it is built; the reply to being started."""

    steps_per_epoch: int | None
    """None where the length of an epoch is unknown."""
    steps: int = 0
    """Steps of training that a checkpoint has given it."""
    wire: WireBytes | None = None
    """None where the sizes in the formulas are unknown."""
    samples: int | None = None
    """Samples per worker and step, of work that says so only when it runs."""
    traits: TraitsRecord | None = None
    """Of the way in which such work was seen to synchronise."""
    matmul_flops_per_s: float | None
    """None where an earlier launch has told it."""
    matmul_precision: str | None = None
    """The arithmetic that it was measured in."""
    messages: list[MessageCount] = Field(default_factory=list)
    """What travelled while it was built."""
    compile_s: float | None = None
    """What compiling the model took before its first turn; None where nothing was compiled."""
    place: RankPlace | None = None


class Fit(Record):
    """Whether a step fits into the memory of every rank; the same on all ranks."""

    fits: bool
    rank: int | None = None
    """The first rank that it does not fit."""
    message: str | None = None
    """What that rank's allocator said."""


class Reply(Record):
    """What one rank answers to one turn."""

    step_s: list[float] = Field(default_factory=list)
    samples: int | None = None
    """Samples per worker and step as they usually are so far, of work that says so only when it runs."""
    recurring: list[int] = Field(default_factory=list)
    """Periods in steps of what a command does beside training: of evaluations, checkpoints, restarts of loaders."""
    loader_processes: int = 0
    """Those of loaders of the user's own, on this rank; what settings ask for is known without it."""
    warnings: list[WarningRecord] = Field(default_factory=list)
    """What this rank has seen so far that a reader of its numbers must know."""
    reference_s: list[float | None] = Field(default_factory=list)
    """How long the short computation after each step took, the warm-up steps included; None where there was none."""
    activity: RankActivity | None = None
    """What its thread did in the timed steps (op `steps`)."""
    gradients: GradientTimes | None = None
    """When backward has each gradient, once that is known (op `steps`, rank 0)."""
    peak_memory_bytes: int = 0
    memory: MemoryParts | None = None
    """What that memory is made of, while it grows with training."""
    peak_reserved_bytes: int | None = None
    """What the allocator of a device held at most, of training itself; None on a CPU."""
    device_memory: DeviceMemory | None = None
    """The memory of the device at the end of the turn; None on a CPU."""
    evaluation: Evaluation | None = None
    facts: Facts | None = None
    place: RankPlace | None = None
    """Where it runs, if that is not among the facts."""
    to_first_bytes_per_s: float | None = None
    """How fast it reaches rank 0, where that was measured."""
    fit: Fit | None = None
    check: RankCheck | None = None
    """The short proof of a cell (op `verify`)."""
    proof: RankProof | None = None
    """The long proof of `worldsize verify`."""
    comm: list[CommSample] = Field(default_factory=list)
    """Samples of the collective benchmark."""
    replayed: ReplayedTimes | None = None
    """How a rank of a rehearsal kept its times in this turn; None of work that computes."""
    links: list[HostLink] = Field(default_factory=list)
    """What the link of this rank's host carries (op `link`)."""
    profile: ProfiledRank | None = None
    profile_problem: str | None = None
    """Why a profile left no trace of this rank."""


def read_replies(answers: Iterable[Any]) -> list[Reply]:
    """The answers of workers in other processes."""
    return [Reply.model_validate(answer) for answer in answers]


def facts_of(replies: Iterable[Reply]) -> list[Facts]:
    """What ranks that have just been built say of themselves."""
    found = [reply.facts for reply in replies]
    assert None not in found, "a rank that is ready knows its facts"
    return [facts for facts in found if facts is not None]


class Turns(Protocol):
    """Where turns come from and replies go to."""

    def reply(self, reply: Reply) -> None:
        """Hand over the reply of this rank to the turn before (the first one says that the rank is ready)."""

    def next(self) -> Turn:
        """Wait for the next turn."""


def run_turns(turns: Turns, ready: Reply, do: Callable[[Turn], Reply]) -> None:
    """Do one turn after the other until `finish`."""
    turns.reply(ready)
    for turn in _until_finish(turns):
        turns.reply(do(turn))


def _until_finish(turns: Turns) -> Iterator[Turn]:
    while True:
        turn = turns.next()
        yield turn
        if turn.op == "finish":
            return
