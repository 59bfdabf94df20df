"""What a step would take: steps that were not seen, simulated one after the other (method.md §14)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.analysis.predict.model import Model
from worldsize.analysis.predict.network import Wire
from worldsize.analysis.predict.observed import Compute, Ranks
from worldsize.analysis.predict.simulate import Message, Network, computing_of, in_a_row
from worldsize.analysis.predict.spread import draws
from worldsize.config import Hosts
from worldsize.sending import Sent

STEPS = 300
"""Steps that are simulated; nine in ten of them are the band."""
SETTLING = 3
"""Steps before them: ranks begin together."""
BAND = (0.05, 0.95)


class Target(NamedTuple):
    """What is asked for."""

    strategy: str
    world_size: int
    batch_size: int
    bucket_mb: float | str | None = None
    hosts: Hosts | None = None
    """Other links between hosts; None is what the run has."""


@dataclass(frozen=True)
class Predicted:
    """What the simulation says of a target, in seconds."""

    steps_s: NDArray[np.float64]
    compute_s: float
    """Computing of a rank by itself, mean over ranks and steps."""
    slowed_s: float
    """By how much messages under way delay it."""
    late_s: float
    """By how much the last rank comes later than the mean."""
    bytes_s: float
    """Exposed communication that grows with the bytes."""
    latency_s: float
    """Exposed communication that grows with the number of messages."""

    @property
    def step_s(self) -> float:
        """Mean."""
        return float(self.steps_s.mean())

    @property
    def band_s(self) -> tuple[float, float]:
        """Between which nine of ten steps lie."""
        low, high = np.quantile(self.steps_s, BAND)
        return float(low), float(high)


@dataclass(frozen=True)
class Inputs:
    """All that a forecast is made of."""

    world_size: int
    compute: Compute
    work_s: float
    """What the strategy computes besides."""
    ranks: Ranks | None
    wire: Wire | None
    """None in a world of one."""
    sent: tuple[Sent, ...]
    factor: float
    """How many times as long messages take as the benchmark says."""
    slowdown: float
    """Share of its speed that computing loses while messages are under way."""

    @property
    def messages(self) -> list[Message]:
        """As the link sees them."""
        return self.wire.messages(self.sent, self.world_size, self.factor) if self.wire else []

    @property
    def network(self) -> Network:
        """What they share."""
        return self.wire.network(self.slowdown, self.factor) if self.wire else Network(1.0)

    @property
    def latency_share(self) -> float:
        """Of what the messages take by themselves, the part that does not grow with their bytes."""
        whole = sum(message.alone_s for message in self.messages)
        if self.wire is None or not whole:
            return 0.0
        latency = sum(self.wire.latency_s(each.collective, self.world_size) for each in self.sent)
        return min(1.0, self.factor * latency / whole)


def inputs_of(model: Model, target: Target) -> Inputs | None:
    """What the run says of a target; None where it does not tell what is sent, or what that costs."""
    compute, ranks = model.compute(target.batch_size), model.ranks(target.strategy)
    if target.world_size == 1:
        compute = model.alone_at(target.batch_size)
        return Inputs(1, compute, 0.0, ranks, None, (), 1.0, 0.0)
    if model.wire is None:
        return None
    wire = model.wire.over(target.hosts)
    buckets = model.buckets(target.bucket_mb, target.world_size, wire)
    sent = model.sent(target.strategy, buckets, compute.backward_s)
    if sent is None or not wire.knows(sent):
        return None
    work_s, factor = model.work_s(target.strategy), model.factor(target.strategy)
    return Inputs(target.world_size, compute, work_s, ranks, wire, tuple(sent), factor, model.slowdown)


def predicted(model: Model, target: Target, steps: int = STEPS) -> Predicted | None:
    """The steps of a target; None where the run does not tell enough."""
    found = inputs_of(model, target)
    return None if found is None else simulated(found, steps)


def simulated(inputs: Inputs, steps: int = STEPS) -> Predicted:
    """So many steps in a row."""
    compute = inputs.compute._replace(after_s=max(0.0, inputs.compute.after_s + inputs.work_s))
    messages, network = inputs.messages, inputs.network
    drawn = list(draws(compute, inputs.ranks, inputs.world_size, steps + SETTLING))
    steps_s = in_a_row((each.computing for each in drawn), inputs.world_size, messages, network)
    found = np.array(list(steps_s))[SETTLING:]
    chance = beside_the_model(inputs.ranks, compute, messages, network)
    rows = [each.row for each in drawn[SETTLING:]]
    lengths = found[:, 0] * (chance[rows] if chance is not None else 1.0)
    _, late, exposed, slowed, computed = found.mean(axis=0).tolist()
    latency = exposed * inputs.latency_share
    return Predicted(lengths, computed, slowed, late, exposed - latency, latency)


def beside_the_model(
    ranks: Ranks | None, compute: Compute, messages: Sequence[Message], network: Network
) -> NDArray[np.float64] | None:
    """Length of each measured step ÷ what the model says of it, over the mean of these: what only chance explains.

    Such as messages that are quicker in one step than in the next. From the cell's own ranks and their own times.
    """
    if ranks is None:
        return None
    count = ranks.rest.shape[1]
    own = messages if count > 1 else ()
    model = np.array([each.length_s for each in in_a_row(computing_of(compute, ranks.factors), count, own, network)])
    ratio = ranks.world_s / model
    return np.asarray(ratio / ratio.mean())
