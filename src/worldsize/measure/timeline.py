"""The timeline of one rank: when the parts of a step began and ended, and when each message did.

A `Timeline` only sets marks while the step runs, and they are recorded as they were set; the analysis takes the step
apart (analysis/parts.py).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from torch import Tensor
from torch.utils.hooks import RemovableHandle

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
    ready: Any = None
    """When the bucket had all of its gradients; None of a message that is no bucket."""
    awaited: Any = None
    """From when on the rank computed nothing until it was done; None where it went on to compute."""


@dataclass
class Step:
    """The marks of one step that is over; they can be read once `end` has passed."""

    begin: Mark
    ends: dict[Phase, Mark]
    """Of the phases that were marked."""
    messages: list[Message] = field(default_factory=list)
    last_gradient: Mark | None = None
    phases: list[tuple[str, Mark]] = field(default_factory=list)
    """In place of `ends`, of a loop that may have several of a kind in a step: what each stretch was, and its end."""

    @property
    def end(self) -> Mark:
        """The last mark: the step is over."""
        return self.ends[Phase.END]


class Timeline:
    """Collects the marks of one step after the other; it is the observer of the rank's channel."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._mark = clock.mark
        self._watching = True
        self._watched: list[Tensor] = []
        self._hooks: list[RemovableHandle] = []
        self._gradients = self._gradients_before = 0
        self._reset()

    @property
    def watching(self) -> bool:
        """Whether more than start and end of a step is marked; without it no parameter has a hook of ours."""
        return self._watching

    @watching.setter
    def watching(self, on: bool) -> None:
        self._watching = on
        self._hang_hooks()

    def _reset(self) -> None:
        self._begin: Mark = None
        self._ends: dict[Phase, Mark] = {}
        self._messages: list[Message] = []
        self._last_gradient: Mark | None = None
        self._phases: list[tuple[str, Mark]] = []

    def begin(self) -> None:
        """A step begins; it ends with the last of the phases."""
        self._reset()
        self._gradients = 0
        self._begin = self._mark()

    def end(self, phase: Phase) -> None:
        """A phase ends, and the next begins. Without watching, only the end of the step is marked."""
        if self._watching or phase is Phase.END:
            self._ends[phase] = self._mark()

    def stretch(self, name: str) -> None:
        """A stretch of a loop that is not worldsize's own ends: a name of `results.step_records.PHASES`."""
        if self._watching:
            self._phases.append((name, self._mark()))

    def end_step(self) -> None:
        """The step ends."""
        self.end(Phase.END)

    def last_gradient(self, mark: Mark) -> None:
        """Take a mark as that of the last gradient so far."""
        self._last_gradient = mark

    def backward_begins(self, before: str) -> None:
        """Mark that a backward begins, and so ends the stretch before it."""
        self._last_gradient = None
        self.stretch(before)

    def backward_over(self) -> None:
        """A backward ends; since its last gradient the rank has computed nothing."""
        last, self._last_gradient = self._last_gradient, None
        self._gradients_before, self._gradients = self._gradients, 0
        if last is not None and self._watching:
            self._phases.append(("backward", last))
        self.stretch("backward" if last is None else "after_backward")

    def ready(self) -> Mark | None:
        """A mark of now, at which a bucket has all of its gradients (called by the channel)."""
        return self._mark() if self._watching else None

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Mark | None = None) -> int:
        """Note that a message was issued (called by the channel)."""
        if self._watching:
            self._messages.append(Message(kind, payload_bytes, blocking, self._mark(), ready=ready))
        return len(self._messages) - 1

    def announced(self, kind: str, payload_bytes: int) -> int:
        """Note that a message will follow another one, at this place among all (called by the channel)."""
        if self._watching:
            self._messages.append(Message(kind, payload_bytes, blocking=False, issued=None))
        return len(self._messages) - 1

    def followed(self, token: int) -> None:
        """Note that an announced message is issued (called by the channel, also from the backend's threads)."""
        if self._watching and token < len(self._messages):
            self._messages[token].issued = self._mark()

    def awaited(self, token: int) -> None:
        """Note that the rank computes nothing from now on until a message is done (called by the channel)."""
        if self._watching and token < len(self._messages):
            self._messages[token].awaited = self._mark()

    def done(self, token: int) -> None:
        """Note that a message is done (called by the channel, also from the backend's threads)."""
        if self._watching and token < len(self._messages):
            self._messages[token].done = self._mark()

    def watch_parameters(self, parameters: Iterable[Tensor]) -> None:
        """Mark the moment at which backward computed the last gradient of these: from there on it only waits.

        Where marks are dear, only gradients that can be the last get one: as many as came in the step before have come.
        A step with fewer of them has no such moment, and the next one looks for it at its new place.
        """
        self._watched = [parameter for parameter in parameters if parameter.requires_grad]
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
            self._last_gradient = self._mark()

    def take(self) -> Step:
        """The marks of the step that has just ended."""
        if not self._phases:
            self._gradients_before = self._gradients
        return Step(self._begin, self._ends, self._messages, self._last_gradient, self._phases)


@dataclass(frozen=True)
class Marks:
    """The marks of one step in nanoseconds of the rank's clock."""

    begin: int
    ends: dict[Phase, int]
    """The end of each phase that was marked; END is always there."""
    messages: list[Message]
    """Those that are done."""
    last_gradient: int | None
    phases: list[tuple[str, int]] = field(default_factory=list)


def read(step: Step, clock: Clock) -> Marks:
    """All marks of a step that is over."""
    return Marks(
        begin=clock.read(step.begin),
        ends={phase: clock.read(mark) for phase, mark in step.ends.items()},
        messages=[_read_message(m, clock) for m in step.messages if m.done is not None],
        last_gradient=_read(clock, step.last_gradient),
        phases=[(name, clock.read(mark)) for name, mark in step.phases],
    )


def _read_message(m: Message, clock: Clock) -> Message:
    # dataclasses.replace takes 1.2 µs in place of 0.25, and a step may have hundreds of messages.
    issued, done = clock.read(m.issued), clock.read(m.done)
    return Message(m.kind, m.payload_bytes, m.blocking, issued, done, _read(clock, m.ready), _read(clock, m.awaited))


def _read(clock: Clock, mark: Mark | None) -> int | None:
    return None if mark is None else clock.read(mark)
