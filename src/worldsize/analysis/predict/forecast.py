"""What a step would take: steps that were not seen, simulated one after the other (method.md §14)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.predict.calibration import Residuals
from worldsize.analysis.predict.model import EXPOSED_ENOUGH, Model
from worldsize.analysis.predict.network import AS_TIMED, Factors, LinkModel
from worldsize.analysis.predict.observed import NOTHING, Compute, Ranks, ranks_of
from worldsize.analysis.predict.simulate import Computing, Message, Network, in_a_row
from worldsize.analysis.predict.spread import draws
from worldsize.config import Hosts
from worldsize.sending import Sent

SIMULATED_STEPS = 300
"""Steps that are simulated; the band spans the middle 90 % of them."""
SETTLING = 3
"""Steps before them: ranks begin together."""
BAND = (0.05, 0.95)
ERRORS = 41
"""Errors of the whole forecast that the band is made of, equally likely."""
LEAST_STEP = 0.2
"""Of what the simulation says, however short a step was drawn."""


class Target(NamedTuple):
    """What is asked for."""

    strategy: str
    world_size: int
    batch_size: int
    bucket_mb: float | str | None = None
    hosts: Hosts | None = None
    """Other links between hosts; None is what the run has."""

    @classmethod
    def of(cls, cell: CellAnalysis) -> Self:
        """A measured cell, as it was run."""
        settings = cell.record.settings if cell.record else None
        return cls(cell.strategy, cell.world_size, cell.batch_size, settings.bucket_mb if settings else None)


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
    """The part of exposed communication that its bytes decide."""
    latency_s: float
    """The part of it that the latency of messages decides (`LinkModel.latency_share`)."""

    @property
    def step_s(self) -> float:
        """Mean."""
        return float(self.steps_s.mean())

    @property
    def latency_share(self) -> float:
        """The part of exposed communication that latency decides, as a share of the step."""
        return min(1.0, self.latency_s / self.step_s)

    def band_s(self, doubt: float = 0.0) -> tuple[float, float]:
        """Between which nine of ten steps lie, where the forecast itself is off by `doubt`.

        That is the standard deviation of its error, as a share. All steps, each at all errors, have these quantiles.
        """
        errors = np.exp(doubt * ndtri((np.arange(ERRORS) + 0.5) / ERRORS))
        low, high = np.quantile(np.outer(self.steps_s, errors), BAND)
        return float(low), float(high)


@dataclass(frozen=True)
class Inputs:
    """All that a forecast is made of."""

    world_size: int
    compute: Compute
    work: Compute
    """What the strategy computes besides."""
    ranks: Ranks | None
    wire: LinkModel | None
    """None in a world of one."""
    sent: tuple[Sent, ...]
    factors: Factors
    """How many times as long messages take as the benchmark says."""
    slowdown: float
    """Share of its speed that computing loses while messages are under way."""
    residuals: Residuals | None
    """What steps of its strategy took beside the model; None where none was measured."""

    @property
    def messages(self) -> list[Message]:
        """As the link sees them."""
        if self.wire is None:
            return []
        return self.wire.messages(self.sent, self.world_size, self.factors, self.work.after_s)

    @property
    def network(self) -> Network:
        """What they share."""
        return self.wire.network(self.slowdown, self.factors) if self.wire else Network(1.0)

    @property
    def latency_share(self) -> float:
        """The power of their latency with which the time of its messages grows."""
        if self.wire is None:
            return 0.0
        return self.wire.latency_share(self.sent, self.world_size, self.factors, self.work.after_s)


def inputs_of(model: Model, target: Target) -> Inputs | None:
    """What the run says of a target; None where it does not tell what is sent, or what that costs."""
    if model.analysis.accumulate > 1:  # gradients travel beside the last of several backwards only
        return None
    cell = model.reference(target.strategy, target.batch_size)
    ranks = ranks_of(model.samples(cell)) if cell else None
    if target.world_size == 1:
        return Inputs(
            1, model.alone_at(target.batch_size, target.strategy), NOTHING, ranks, None, (), AS_TIMED, 0.0, None
        )
    sending = sent_over(model, target)
    if sending is None:
        return None
    wire, sent = sending
    compute = model.compute(target.batch_size, target.strategy)
    assert model.wire is not None, "sent_over has asked for it"
    work = model.work(target.strategy, wire.waiting_s(sent, target.world_size))
    factors = wire.factors_over(model.wire, model.factors_of(target.strategy))
    residuals = model.residuals(cell) if cell and cell.strategy == target.strategy else None
    return Inputs(target.world_size, compute, work, ranks, wire, sent, factors, model.slowdown(wire), residuals)


def sent_over(model: Model, target: Target) -> tuple[LinkModel, tuple[Sent, ...]] | None:
    """The link of a target and what a step sends over it; None where the run does not tell what, or its cost."""
    if model.wire is None:
        return None
    wire = model.wire.over(target.hosts)
    buckets = model.buckets(target.bucket_mb, target.world_size, wire)
    sent = model.sent(target.strategy, buckets, model.compute(target.batch_size, target.strategy).backward_s)
    return None if sent is None or not wire.knows(sent) else (wire, tuple(sent))


def predicted(model: Model, target: Target, steps: int = SIMULATED_STEPS) -> Predicted | None:
    """The steps of a target; None where the run does not tell enough."""
    found = inputs_of(model, target)
    return None if found is None else simulated(found, steps)


def simulated(inputs: Inputs, steps: int = SIMULATED_STEPS) -> Predicted:
    """Simulate steps one after the other."""
    compute = inputs.compute.plus(inputs.work)
    rows: list[int] = []

    def computing() -> Iterator[Computing]:
        for each in draws(compute, inputs.ranks, inputs.world_size, steps + SETTLING):
            rows.append(each.row)
            yield each.computing

    found = np.array(list(in_a_row(computing(), inputs.world_size, inputs.messages, inputs.network)))[SETTLING:]
    lengths, late, exposed, slowed, computed = found.T
    lengths = lengths + beside_s(inputs.residuals, rows[SETTLING:], float(exposed.mean()))
    latency = float(exposed.mean()) * inputs.latency_share
    least_s = inputs.wire.least_s(inputs.sent, inputs.world_size) if inputs.wire else 0.0
    return Predicted(
        np.maximum(lengths, np.maximum(least_s, LEAST_STEP * found[:, 0])),
        compute_s=float(computed.mean()),
        slowed_s=float(slowed.mean()),
        late_s=float(late.mean()),
        bytes_s=float(exposed.mean()) - latency,
        latency_s=latency,
    )


def beside_s(residuals: Residuals | None, rows: Sequence[int], exposed_s: float) -> NDArray[np.float64]:
    """What drawn steps take beside the simulation: as those that they follow did.

    Where those had notable exposed communication it is taken for communication, and grows with it.
    """
    if residuals is None:
        return np.zeros(len(rows))
    grows = exposed_s / residuals.exposed_s if residuals.exposed_s > EXPOSED_ENOUGH * residuals.step_s else 1.0
    return np.asarray(residuals.beside_s[list(rows)] * grows)
