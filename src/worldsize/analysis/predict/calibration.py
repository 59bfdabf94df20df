"""How far training keeps to the benchmark of its link, cell by cell, and what its steps take besides (§14)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from worldsize.analysis.predict.network import Factors, Wire
from worldsize.analysis.predict.observed import Compute
from worldsize.analysis.predict.simulate import Step, computing_of, in_a_row
from worldsize.analysis.statistics import NORMAL_QUANTILE, half_width
from worldsize.results.records import Estimate
from worldsize.sending import Sent

USUAL_DOUBT = 0.1
"""How far messages in training usually are from the benchmark (standard deviation, as a share): taken, not measured."""
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
APART = 2.0
"""Ratio of the longest to the shortest overlapped communication from which on cells tell work from slowdown."""


class Overhead(NamedTuple):
    """What backward takes longer in a step that synchronises."""

    work_s: float
    """However long messages are under way: caches that have gone cold meanwhile, gradients that are packed."""
    slowdown: float
    """Share of its speed that computing loses while messages are under way. Time counts, not bytes: what slows is the
    backend's thread on the same core."""


def overhead_of(more_s: Sequence[float], overlapped_s: Sequence[float]) -> Overhead:
    """From what backward takes longer in each cell, and how long its messages overlap; nothing from no cell.

    Neither is below 0. Cells of strategies that do not overlap tell the work alone. Where all overlaps are much alike
    all is slowdown, for then nothing tells it from work.
    """
    if not more_s:
        return Overhead(0.0, 0.0)
    apart = min(overlapped_s) == 0 or max(overlapped_s) > APART * min(overlapped_s)
    design = np.column_stack([np.full(len(more_s), float(apart)), overlapped_s])
    work_s, slowdown = nnls(design, np.asarray(more_s))[0]
    return Overhead(float(work_s), min(float(slowdown), MOST_SLOWDOWN))


def step_doubt(step_s: Estimate) -> float:
    """Standard error of a step, as a share of it."""
    width = half_width(step_s)
    return max(LEAST_DOUBT, UNKNOWN_DOUBT if width is None else width / NORMAL_QUANTILE)


class Factor(NamedTuple):
    """What one cell says of how long messages take, ÷ what the benchmark says."""

    strategy: str
    logarithm: float
    doubt: float
    """Its standard error."""
    latency: float
    """Share of what its messages take by the benchmark that does not grow with their bytes."""
    in_turn: bool = False
    """Whether gathers and scatters take turns in it: their latency was timed in another way."""


class Chance(NamedTuple):
    """What measured steps took beside what the model says of them."""

    beside_s: NDArray[np.float64]
    """Of each step, in the order of its cell's `Ranks`."""
    exposed_s: float
    """Exposed communication of these steps, by the model."""
    step_s: float


class Measured(NamedTuple):
    """The steps of a measured cell, as the model has them."""

    compute: Compute
    factors: NDArray[np.float64]
    """Computing of each rank in each step, as shares of the mean."""
    sent: tuple[Sent, ...]
    wire: Wire
    world_size: int
    slowdown: float

    def steps(self, factors: Factors) -> list[Step]:
        """One after the other, where messages take `factors` times as long as the benchmark says."""
        messages = self.wire.messages(self.sent, self.world_size, factors)
        network = self.wire.network(self.slowdown, factors)
        return list(in_a_row(computing_of(self.compute, self.factors), self.world_size, messages, network))

    def step_s(self, factors: Factors) -> float:
        """Their mean."""
        return float(np.mean([step.length_s for step in self.steps(factors)]))


def chance_of(steps: Sequence[Step], world_s: NDArray[np.float64], step_s: Estimate) -> Chance:
    """What steps that lasted `world_s` took beside what the model says of them.

    A mean that is hardly known says little of what the model misses: that part of it counts as chance.
    """
    beside = world_s - np.array([step.length_s for step in steps])
    trusted = USUAL_DOUBT**2 / (USUAL_DOUBT**2 + step_doubt(step_s) ** 2)
    exposed_s = float(np.mean([step.exposed_s for step in steps]))
    return Chance(beside - (1 - trusted) * float(beside.mean()), exposed_s, step_s.value)


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
