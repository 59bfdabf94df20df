"""How far training keeps to the benchmark of its link, cell by cell, and what its steps take besides (§14)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from worldsize.analysis.predict.network import Factors, LinkModel
from worldsize.analysis.predict.observed import Compute
from worldsize.analysis.predict.simulate import Step, computing_of, in_a_row
from worldsize.analysis.statistics import NORMAL_QUANTILE, half_width, nonnegative_fit
from worldsize.results.records import Estimate
from worldsize.sending import Sent

USUAL_DOUBT = 0.1
"""How far messages in training usually are from the benchmark (standard deviation, as a share): taken, not measured."""
MODEL_DOUBT = 0.02
"""By how much of itself what messages take may not be as the model has it, however well their step is known. Without it
two cells known to 0.1 % would explain any difference between them by latency. Taken: 0 to 0.02 made no difference to
116 forecasts over other links, of six models."""
LATENCY_DOUBT = 0.5
"""The same of their latency alone: six benchmarks of a study said 478 to 943 µs of one all-reduce, whose training took
560 to 620 (benchmarks/predict.py, 80 small layers)."""
IN_TURN_DOUBT = 0.2
"""The same where gathers and scatters take turns, which are timed as a training sends them: 24 benchmarks of two runs
said 199 to 515 µs of one way (standard deviation of the logarithm 0.20)."""
LEAST_DOUBT, UNKNOWN_DOUBT = 0.01, 0.1
"""Of a step (shares): what remains of drift however narrow its interval, and where it has none."""
MOST_SLOWDOWN = 0.8
"""However busy a core is, the system gives both their turn."""
IDLE_SLOWDOWN, SLOWDOWN_S_PER_BYTE, MOST_USUAL_SLOWDOWN = 0.03, 0.9e-9, 0.2
"""What gloo's messages usually take of the core on which a rank computes: a share while they are under way, more of it
per byte that the link carries, and a limit, for no faster link was measured. 16 studies over 100 Mbit/s, 300 Mbit/s and
1 Gbit/s of models of 37 and 45 MB said 0.02, 0.06 and 0.13 (medians)."""
USUAL_SLOWDOWN_DOUBT = 0.5
"""Standard error of what is usual, as a share of it: taken, not measured."""
BACKWARD_DOUBT = 0.015
"""How far off a backward beside messages may be against one without (a share of it): taken, not measured."""


WAKING = 0.3
"""The power with which what a rank does after a message grows with how long it waited for it. On two machines, over 1
Gbit/s, 300 and 100 Mbit/s, 80 small layers: 47, 75 and 114 µs a message (gather-scatter, root); 32, 49 and 64
(gather-scatter) and 47, 68 and 110 (all-reduce, mean of the ranks): powers of 0.24 to 0.45 of the waits, 0.31 in the
mean."""
MOST_LONGER = 20.0
"""By how many times longer, or shorter, waits are taken to be at most: those that were measured took 0.3 to 6 ms."""


class Overhead(NamedTuple):
    """What backward takes longer in a step that synchronises."""

    work_s: float
    """However long messages are under way: hooks of each gradient, packing, caches that have gone cold meanwhile."""
    slowdown: float
    """Share of its speed that computing loses while messages are under way; it rises with the rate of the link."""


class Slowdown(NamedTuple):
    """A cell whose messages travel beside backward, and what its backward takes longer (s)."""

    more_s: float
    overlapped_s: float
    """How long they are under way while it computes."""
    backward_s: float
    """Without messages."""


def usual_slowdown(bytes_per_s: float) -> float:
    """What computing usually loses of its speed while gloo's messages are under way over a link of this rate."""
    return min(MOST_USUAL_SLOWDOWN, IDLE_SLOWDOWN + SLOWDOWN_S_PER_BYTE * bytes_per_s)


def slowdown_over(slowdown: float, old_bytes_per_s: float, new_bytes_per_s: float) -> float:
    """A slowdown over another link: it keeps its ratio to what is usual over a link of that rate."""
    return min(MOST_SLOWDOWN, slowdown * usual_slowdown(new_bytes_per_s) / usual_slowdown(old_bytes_per_s))


def overhead_of(found: Sequence[Slowdown], usual: float | None) -> Overhead:
    """From what backward takes longer in each cell whose messages overlap it, beside the slowdown that is usual.

    Neither is below 0. Cells with short and long overlaps tell work from slowdown; of overlaps that are all alike what
    is usual decides. Without that (None) and without cells nothing is known to take longer.
    """
    if usual is None and not found:
        return Overhead(0.0, 0.0)
    prior = [] if usual is None else [usual]
    values = np.array([each.more_s for each in found] + prior)
    design = np.array([[1.0, each.overlapped_s] for each in found] + [[0.0, 1.0] for _ in prior])
    doubts = np.array(
        [BACKWARD_DOUBT * each.backward_s for each in found] + [USUAL_SLOWDOWN_DOUBT * each for each in prior]
    )
    work_s, slowdown = nonnegative_fit(design, values, doubts)
    return Overhead(float(work_s), min(float(slowdown), MOST_SLOWDOWN))


def woken(work_s: float, waiting_s: float, known_s: float) -> float:
    """What a strategy computes after backward, where ranks wait `waiting_s` for its messages, and did `known_s`.

    A core that has waited longer takes longer for what follows: its caches have gone cold (WAKING). The same where
    `known_s` is 0, and where it seems to compute less than nothing.
    """
    if work_s <= 0 or not known_s:
        return work_s
    longer = min(max(waiting_s / known_s, 1 / MOST_LONGER), MOST_LONGER)
    return float(work_s * longer**WAKING)


def step_doubt(step_s: Estimate) -> float:
    """Standard error of a step, as a share of it."""
    width = half_width(step_s)
    return max(LEAST_DOUBT, UNKNOWN_DOUBT if width is None else width / NORMAL_QUANTILE)


def messages_doubt(step_s: Estimate, exposed: float) -> float:
    """How little a cell tells of its messages, which are the share `exposed` of its step, as a share of themselves."""
    return float(np.hypot(step_doubt(step_s) / exposed, MODEL_DOUBT))


class Factor(NamedTuple):
    """What one cell says of how long messages take, ÷ what the benchmark says."""

    strategy: str
    logarithm: float
    doubt: float
    """Its standard error."""
    latency: float
    """The power of their latency with which the time of its messages grows."""
    in_turn: bool = False
    """Whether gathers and scatters take turns in it: their latency was timed in another way."""


class Residuals(NamedTuple):
    """What measured steps took beside what the model says of them."""

    beside_s: NDArray[np.float64]
    """Of each step, in the order of its cell's `Ranks`."""
    exposed_s: float
    """Exposed communication of these steps, by the model."""
    step_s: float


class Measured(NamedTuple):
    """The steps of a measured cell, as the model has them."""

    compute: Compute
    work: Compute
    """What the strategy computes besides."""
    factors: NDArray[np.float64]
    """Computing of each rank in each step, as shares of the mean."""
    sent: tuple[Sent, ...]
    wire: LinkModel
    world_size: int
    slowdown: float

    @property
    def latency_share(self) -> float:
        """The power of their latency with which the time of its messages grows, as the benchmark has it."""
        return self.wire.latency_share(self.sent, self.world_size, work_s=self.work.after_s)

    def steps(self, factors: Factors) -> list[Step]:
        """One after the other, where messages take `factors` times as long as the benchmark says."""
        messages = self.wire.messages(self.sent, self.world_size, factors, self.work.after_s)
        network = self.wire.network(self.slowdown, factors)
        compute = self.compute.plus(self.work)
        return list(in_a_row(computing_of(compute, self.factors), self.world_size, messages, network))

    def step_s(self, factors: Factors) -> float:
        """Their mean."""
        return float(np.mean([step.length_s for step in self.steps(factors)]))


def residuals_of(steps: Sequence[Step], world_s: NDArray[np.float64], step_s: Estimate) -> Residuals:
    """What steps that lasted `world_s` took beside what the model says of them.

    A mean that is hardly known says little of what the model misses: that part of it counts as chance.
    """
    beside = world_s - np.array([step.length_s for step in steps])
    trusted = USUAL_DOUBT**2 / (USUAL_DOUBT**2 + step_doubt(step_s) ** 2)
    exposed_s = float(np.mean([step.exposed_s for step in steps]))
    return Residuals(beside - (1 - trusted) * float(beside.mean()), exposed_s, step_s.value)


def combined(found: Sequence[Factor], usual: Factors) -> Factors:
    """What some cells say together of latency and rate, beside what is usual; each counts by its doubt.

    A cell says one number, log f ≈ share·log(latency factor) + (1 − share)·log(rate factor): latency, of which the
    benchmark tells less, takes as much of it as its share of the messages allows.
    """
    in_turn = bool(found) and all(each.in_turn for each in found)
    precision = np.diag([(IN_TURN_DOUBT if in_turn else LATENCY_DOUBT) ** -2, USUAL_DOUBT**-2])
    known = precision @ np.log(usual)
    for each in found:
        shares = np.array([each.latency, 1 - each.latency])
        precision = precision + np.outer(shares, shares) / each.doubt**2
        known = known + shares * each.logarithm / each.doubt**2
    latency, rate = np.exp(np.linalg.solve(precision, known))
    return Factors(float(latency), float(rate))
