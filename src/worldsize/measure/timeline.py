"""The timeline of one rank: when the parts of a step began and ended, and when each message did.

A `Timeline` only sets marks while the step runs; `take_apart` turns the marks into the parts of method.md §2
afterwards, as a pure function.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from worldsize.analysis.intervals import Interval, difference, intersection, length, union
from worldsize.measure.clocks import Clock, Mark


class Phase(IntEnum):
    """The stretches of a step that one marker after the other ends, in this order."""

    DATA_WAIT = 0
    COPY = 1
    FORWARD = 2
    BACKWARD = 3
    SYNCHRONISE = 4
    OPTIMIZER = 5
    END = 6
    """Bookkeeping after the optimizer, until the step is over."""


@dataclass
class Message:
    """One message of this rank: issued and done on its own clock (ns)."""

    kind: str
    payload_bytes: int
    blocking: bool
    """The rank computes nothing until it is done."""
    issued: Any
    done: Any = None


@dataclass(frozen=True)
class Parts:
    """A step, taken apart (method.md §2, §3); seconds. The first seven add up to `step_s`."""

    data_wait_s: float
    copy_s: float
    forward_s: float
    backward_s: float
    exposed_sync_s: float
    optimizer_s: float
    other_s: float
    step_s: float
    comm_s: float
    overlapped_s: float


@dataclass
class Step:
    """The marks of one step that is over; they can be read once `ends[-1]` has passed."""

    begin: Mark
    ends: list[Mark]
    messages: list[Message] = field(default_factory=list)
    last_gradient: Mark | None = None


class Timeline:
    """Collects the marks of one step after the other; it is the observer of the rank's channel."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._watching = True
        self._watched: list[nn.Parameter] = []
        self._hooks: list[RemovableHandle] = []
        self._gradients = self._gradients_before = 0
        self._reset()

    @property
    def watching(self) -> bool:
        """Whether more than begin and end of a step is marked; without it no parameter has a hook of ours."""
        return self._watching

    @watching.setter
    def watching(self, on: bool) -> None:
        self._watching = on
        self._hang_hooks()

    def _reset(self) -> None:
        self._begin: Mark = None
        self._ends: list[Mark] = []
        self._messages: list[Message] = []
        self._last_gradient: Mark | None = None

    def begin(self) -> None:
        """A step begins; it ends with the last of the phases."""
        self._reset()
        self._gradients = 0
        self._begin = self.clock.mark()

    def end(self, phase: Phase) -> None:
        """A phase ends, and the next begins. Without watching, only the end of the step is marked."""
        if self.watching or phase is Phase.END:
            self._ends.append(self.clock.mark())

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool) -> int:
        """Note that a message was issued (called by the channel)."""
        if self.watching:
            self._messages.append(Message(kind, payload_bytes, blocking, self.clock.mark()))
        return len(self._messages) - 1

    def done(self, token: int) -> None:
        """Note that a message is done (called by the channel, also from the backend's threads)."""
        if self.watching and token < len(self._messages):
            self._messages[token].done = self.clock.mark()

    def watch_gradients(self, model: nn.Module) -> None:
        """Mark the moment at which backward computed its last gradient: from there on it only waits.

        Where marks are dear, only gradients that can be the last get one: as many as came in the step before have come.
        A step with fewer of them has no such moment, and the next one looks for it at its new place.
        """
        self._watched = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._hang_hooks()

    def _hang_hooks(self) -> None:
        wanted = self._watched if self._watching else []
        if bool(self._hooks) == bool(wanted):
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = [parameter.register_post_accumulate_grad_hook(self._ready) for parameter in wanted]

    def _ready(self, _: Any) -> None:
        self._gradients += 1
        if not (self.clock.marks_are_dear and self._gradients < self._gradients_before):
            self._last_gradient = self.clock.mark()

    def take(self) -> Step:
        """The marks of the step that has just ended."""
        self._gradients_before = self._gradients
        return Step(self._begin, self._ends, self._messages, self._last_gradient)


def read(step: Step, clock: Clock) -> tuple[int, list[int], list[Message], int | None]:
    """All marks of a step in nanoseconds of the rank's clock: begin, ends, messages, last gradient."""
    messages = [
        Message(m.kind, m.payload_bytes, m.blocking, clock.read(m.issued), clock.read(m.done))
        for m in step.messages
        if m.done is not None
    ]
    last = None if step.last_gradient is None else clock.read(step.last_gradient)
    return clock.read(step.begin), [clock.read(mark) for mark in step.ends], messages, last


def take_apart(begin: int, ends: list[int], messages: list[Message], last_gradient: int | None) -> Parts:
    """Turn the marks of one step (ns) into its parts (s).

    `ends` holds the end of each Phase. A rank computes in forward, in backward until its last gradient is there,
    and in the optimizer, except while a blocking message holds it. Exposed communication is the union of the
    messages outside those stretches; it is taken out of the phase it lies in, so that the parts add up to the
    wall time of the step. Work of the synchronisation that is no message (the root's averaging) is *other*.
    """
    starts = [begin, *ends[:-1]]
    phase = [[(start, end)] for start, end in zip(starts, ends, strict=True)]
    communication = union((m.issued, m.done) for m in messages)
    held = union((m.issued, m.done) for m in messages if m.blocking)
    compute = difference(union(_compute(starts, ends, last_gradient)), held)
    overlapped = length(intersection(communication, compute))
    exposed = difference(communication, compute)

    def without_exposed(which: Phase) -> int:
        return length(phase[which]) - length(intersection(phase[which], exposed))

    step = ends[-1] - begin
    exposed_ns = length(intersection(exposed, [(begin, ends[-1])]))
    parts = {
        "data_wait_s": without_exposed(Phase.DATA_WAIT),
        "copy_s": without_exposed(Phase.COPY),
        "forward_s": without_exposed(Phase.FORWARD),
        "backward_s": without_exposed(Phase.BACKWARD),
        "exposed_sync_s": exposed_ns,
        "optimizer_s": without_exposed(Phase.OPTIMIZER),
    }
    parts["other_s"] = step - sum(parts.values())  # in whole nanoseconds: a difference of floats could be below 0
    return Parts(
        **{name: ns / 1e9 for name, ns in parts.items()},
        step_s=step / 1e9,
        comm_s=(overlapped + exposed_ns) / 1e9,
        overlapped_s=overlapped / 1e9,
    )


def _compute(starts: list[int], ends: list[int], last_gradient: int | None) -> list[Interval]:
    backward_end = ends[Phase.BACKWARD]
    if last_gradient is not None and starts[Phase.BACKWARD] <= last_gradient:
        backward_end = min(backward_end, last_gradient)
    return [
        (starts[Phase.FORWARD], ends[Phase.FORWARD]),
        (starts[Phase.BACKWARD], backward_end),
        (starts[Phase.OPTIMIZER], ends[Phase.OPTIMIZER]),
    ]
