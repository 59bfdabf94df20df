"""A step as a sequence of events: ranks compute, messages wait for the last rank and share the link (method.md §14).

All ranks of a collective begin it when the last one has issued it, and end it together. So a step has one row of
messages, and each rank its own times of computing.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.sending import AFTER_BACKWARD, BEFORE_FORWARD

Times = NDArray[np.float64]

IN_FLIGHT = 2
"""Messages that gloo works on at a time: the threads of its process group in torch."""
NOTHING_S = 1e-12


class Message(NamedTuple):
    """One collective of the step, as the link sees it."""

    ready: float
    """When ranks issue it, as a share of backward; or BEFORE_FORWARD, AFTER_BACKWARD."""
    alone_s: float
    """How long it takes with the link to itself."""
    wire_bytes: float
    """What a rank sends for it."""


class Computing(NamedTuple):
    """What each rank computes in one step (s); arrays over ranks."""

    before_s: Times
    """Until backward begins: data wait, copy, forward."""
    backward_s: Times
    after_s: Times
    """After the synchronisation: optimizer and the rest."""


@dataclass(frozen=True)
class Network:
    """What all messages share."""

    bytes_per_s: float
    """Rate of the busiest link."""
    slowdown: float = 0.0
    """Share of its speed that computing loses while messages are under way."""
    in_flight: int = IN_FLIGHT


class Outcome(NamedTuple):
    """One step of the world."""

    ends_s: Times
    """When each rank ends it, with the clock at the end of the step before on the last rank."""
    late_s: float
    """By how much the last rank comes to its last gradient later than the ranks do on the mean."""
    exposed_s: float
    """What is left of the messages when the last rank has computed."""
    slowed_s: float
    """By how much messages under way delayed the computing."""


def simulate(starts_s: Times, computing: Computing, messages: Sequence[Message], network: Network) -> Outcome:
    """One step: `starts_s` is when each rank begins, 0 or before."""
    begin = starts_s.copy()
    first = [message for message in messages if message.ready == BEFORE_FORWARD]
    if first:  # all wait for the root of a broadcast, and it for none
        begin = np.maximum(begin, begin[0]) + sum(message.alone_s for message in first)
    backward = begin + computing.before_s
    overlapped = [message for message in messages if message.ready not in (BEFORE_FORWARD, AFTER_BACKWARD)]
    after = [message for message in messages if message.ready == AFTER_BACKWARD]
    shares = np.array([message.ready for message in overlapped])
    # The last rank to have a bucket ready decides when it goes; which rank is last may differ from bucket to bucket.
    ready = (backward[:, None] + shares * computing.backward_s[:, None]).max(axis=0) if overlapped else shares
    computed = backward + computing.backward_s
    over, slowed = _carried(ready.tolist(), float(computed.max()), overlapped, network)
    computed = computed + slowed
    last = float(computed.max())
    arrived = max(over, last) + sum(message.alone_s for message in after) if messages else last
    done = np.maximum(computed, arrived) if overlapped or after else computed
    exposed = (arrived - last if overlapped or after else 0.0) + sum(message.alone_s for message in first)
    return Outcome(done + computing.after_s, last - float(computed.mean()), exposed, slowed)


class Step(NamedTuple):
    """One of several steps in a row, in seconds."""

    length_s: float
    late_s: float
    exposed_s: float
    slowed_s: float
    compute_s: float
    """Of the ranks, on the mean, by themselves."""


def in_a_row(
    computing: Iterable[Computing], world_size: int, messages: Sequence[Message], network: Network
) -> Iterator[Step]:
    """Steps one after the other: a rank that ends one early begins the next early."""
    starts = np.zeros(world_size)
    for each in computing:
        outcome = simulate(starts, each, messages, network)
        end = float(outcome.ends_s.max())
        starts = outcome.ends_s - end
        plain = float(sum(part.mean() for part in each))
        yield Step(end, outcome.late_s, outcome.exposed_s, outcome.slowed_s, plain)


def computing_of(parts: Sequence[float], factors: Times) -> Iterator[Computing]:
    """The same parts in each step, times what each rank has in it: `factors` is of shape (steps, ranks)."""
    for row in factors:
        yield Computing(*(part * row for part in parts))


def _carried(ready: list[float], computed: float, messages: Sequence[Message], network: Network) -> tuple[float, float]:
    """When the last of the overlapped messages is done, and by how much they have delayed computing.

    `ready` and `computed` are points on the clock of computing, which runs slower than time while messages are under
    way. Messages begin in order, `in_flight` at a time; those under way share the link when they want more than it has.
    """
    now = clock = ready[0] if ready else 0.0
    waiting = list(range(len(messages)))
    under_way: dict[int, float] = {}
    """Number of a message → the share of it that is still to come."""
    while waiting or under_way:
        while waiting and len(under_way) < network.in_flight and ready[waiting[0]] <= clock + NOTHING_S:
            under_way[waiting.pop(0)] = 1.0
        wanted = sum(messages[k].wire_bytes / messages[k].alone_s for k in under_way)
        fair = min(1.0, network.bytes_per_s / wanted) if wanted else 1.0
        computes = clock < computed
        speed = 1 - network.slowdown if computes and under_way else 1.0
        spans = [left * messages[k].alone_s / fair for k, left in under_way.items()]
        if waiting and len(under_way) < network.in_flight:
            spans.append((ready[waiting[0]] - clock) / speed)
        if computes and under_way:
            spans.append((computed - clock) / speed)
        span = max(min(spans), 0.0)
        now, clock = now + span, clock + span * speed
        for k in list(under_way):
            under_way[k] -= span * fair / messages[k].alone_s
            if under_way[k] <= 1e-9:
                del under_way[k]
    return now, max(0.0, now - clock) if ready else 0.0
