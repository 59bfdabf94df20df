"""Bandwidths of collectives and the α–β cost model (method.md §5)."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from worldsize.analysis.collective_cost import IN_TURN, ROOTED, as_run, bus_factor, cost_s, further_segments, steps
from worldsize.analysis.statistics import Floats, median_estimate, nonnegative_fit
from worldsize.config import Hosts, SlowestLink
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.records import Estimate

OFF_LINE = 0.02
"""By how much of itself a call may be off the line: what separates two runs, however many samples each has."""
EXPONENTS = (2, 4, 8)
"""Those above 1 that p may have. With 8 the shorter one of latency and bytes hides nearly altogether: a call takes at
most 9 % longer than the longer one."""
CLEARLY = 4.0
"""By how much Akaike's criterion must be smaller with a p above 1: a model behind by 4 has considerably less support
(Burnham and Anderson 2002). With 3 a planted latency of segments was taken for a p in a few of 20 benchmarks."""
EXACT = 1e-9
"""A mean square of logarithmic residuals below which a fit is as good as it can be."""
FEWEST_IN_TURN = 3
"""Samples of a gather and a scatter in turn: of one size, they have no fit that would leave a disturbed one out."""
MIN_R_SQUARED = 0.5
"""Below it α and β describe nothing, and are not shown."""


@dataclass(frozen=True)
class CurvePoint:
    """One size of one collective."""

    collective: str
    size_bytes: int
    time_s: Estimate
    """Median over samples of the time per call, from the first rank's begin to the last rank's end."""
    algbw_bytes_per_s: float
    busbw_bytes_per_s: float
    """Bus bandwidth; for gather and scatter the rate through the root's link."""
    wrong_elements: int


@dataclass(frozen=True)
class CostModel:
    """t(S) = ((steps·α)^p + (further segments·γ + factor·S/β)^p)^(1/p), and how well it fits (method.md §5)."""

    collective: str
    as_run: str
    """The collective whose messages are really sent: its steps and its factor are those of the model."""
    world_size: int
    alpha_s: float
    """Latency of one step."""
    beta_bytes_per_s: float
    """Rate of the link."""
    segment_s: float
    """γ, the latency of a further segment of gloo's ring; 0 where the times do not show any."""
    r_squared: float
    """Of log t over the sizes: 1 is perfect; in logarithms, or the largest size alone would decide it."""
    smallest_bytes: int
    largest_bytes: int
    exponent: int = 1
    """p: with 1 bytes come after latency; the larger it is, the more of the shorter one hides behind the longer one."""

    def time_s(self, size_bytes: float) -> float:
        """The time that the model predicts for a size."""
        return self.between(self.world_size, size_bytes)

    def between(self, world_size: int, size_bytes: float) -> float:
        """The same between another number of workers."""
        beta, gamma = self.beta_bytes_per_s, self.segment_s
        return cost_s(self.as_run, world_size, self.alpha_s, beta, size_bytes, gamma, self.exponent)

    def transfer_s(self, size_bytes: float) -> float:
        """What its bytes alone take on the wire."""
        return bus_factor(self.as_run, self.world_size) * size_bytes / self.beta_bytes_per_s


def collectives_of(record: CommRecord) -> list[str]:
    """The collectives that were measured, in order."""
    return [name for name in dict.fromkeys(sample.collective for sample in record.ranks[0]) if name != IN_TURN]


def in_turn_s(record: CommRecord) -> float | None:
    """One way of a gather of 1 KiB and the scatter that answers it, in turn (s, method.md §5).

    None where that was not timed, or so seldom that one disturbed call could be it.
    """
    timed = curve(record, IN_TURN)
    if not timed or timed[0].time_s.samples < FEWEST_IN_TURN:
        return None
    return timed[0].time_s.value / steps(IN_TURN, record.world_size)


def curve(record: CommRecord, collective: str) -> list[CurvePoint]:
    """Time and bandwidths of a collective by size, ascending; empty at world size 1 (method.md §5)."""
    if record.world_size == 1:
        return []
    times: dict[int, list[float]] = {}
    wrong: dict[int, int] = {}
    for together in zip(*record.ranks, strict=True):
        first = together[0]
        if first.collective == collective:
            times.setdefault(first.size_bytes, []).append(call_s(together))
            wrong[first.size_bytes] = max(sample.wrong_elements for sample in together)
    return [_point(record.world_size, collective, size, times[size], wrong[size]) for size in sorted(times)]


def call_s(together: Sequence[CommSample]) -> float:
    """Seconds per call of one sample, given as all ranks saw it (method.md §5)."""
    # From the first rank's begin: what it has sent before the last one begins is on its way already.
    length_ns = max(sample.end_ns for sample in together) - min(sample.begin_ns for sample in together)
    return length_ns / 1e9 / together[0].calls


def median_call(times_s: Sequence[float]) -> Estimate:
    """Median of samples of one size, with its interval: they come from rounds over all sizes, each a block (§8)."""
    return median_estimate({(0, block): np.array([time]) for block, time in enumerate(times_s)})


def _point(world_size: int, collective: str, size: int, times: Sequence[float], wrong: int) -> CurvePoint:
    time_s = median_call(times)
    algbw = size / time_s.value
    return CurvePoint(
        collective=collective,
        size_bytes=size,
        time_s=time_s,
        algbw_bytes_per_s=algbw,
        busbw_bytes_per_s=algbw * bus_factor(collective, world_size),
        wrong_elements=wrong,
    )


def peak(points: Iterable[CurvePoint]) -> float | None:
    """The largest bus bandwidth of a curve in bytes/s; None without points."""
    return max((point.busbw_bytes_per_s for point in points), default=None)


def fit(points: Sequence[CurvePoint], world_size: int, backend: str = "gloo") -> CostModel | None:
    """Fit α, β and p, and γ where the times show it (none below 0); None with fewer than 3 sizes.

    Short calls tell the latency, long ones the rate (`_doubts_s`). The plainest model is the sum of both. One with γ,
    and of gloo one with a p above 1, is taken where it describes the logarithms of the times better, that with p
    clearly: by Akaike's criterion, corrected for few sizes (Hurvich and Tsai 1989). Three sizes tell neither γ nor p.
    None also if the times do not grow with the size, so that there is no bandwidth to speak of.
    """
    if len(points) < 3:
        return None
    collective = as_run(points[0].collective, backend)
    times = np.array([point.time_s.value for point in points])
    sizes = np.array([point.size_bytes for point in points], dtype=np.float64)
    further = np.array([further_segments(collective, world_size, size) for size in sizes], dtype=np.float64)
    design = np.column_stack(
        [np.full(len(points), steps(collective, world_size)), bus_factor(collective, world_size) * sizes, further]
    )
    doubts = _doubts_s(times)
    with_segments = backend == "gloo" and further.any()
    found = [_added(design[:, :columns], times, doubts) for columns in ((2, 3) if with_segments else (2,))]
    if backend == "gloo":
        hidden = (_hidden_in_part(design, times, doubts, exponent) for exponent in EXPONENTS)
        found += [each for each in hidden if each is not None]
    # Of equal ones the first, which is the plainest.
    best = min(found, key=lambda each: each.criterion + CLEARLY * (each.exponent > 1))
    alpha, inverse_beta, *segment = best.coefficients
    if inverse_beta <= 0:
        return None
    predicted = best.predicted
    residual = np.sum((np.log(times) - np.log(predicted)) ** 2)
    spread = np.sum((np.log(times) - np.log(times).mean()) ** 2)
    return CostModel(
        collective=points[0].collective,
        as_run=collective,
        world_size=world_size,
        alpha_s=float(alpha),
        beta_bytes_per_s=float(1 / inverse_beta),
        segment_s=float(segment[0]) if segment else 0.0,
        r_squared=float(1 - residual / spread) if spread else 1.0,
        smallest_bytes=int(sizes[0]),
        largest_bytes=int(sizes[-1]),
        exponent=best.exponent,
    )


class _Fitted(NamedTuple):
    """One way to describe the times."""

    criterion: float
    """Akaike's, corrected for few sizes; the smaller the better."""
    coefficients: Floats
    """α, 1/β and, of some, γ."""
    predicted: Floats
    exponent: int = 1


def _added(design: Floats, times: Floats, doubts: Floats) -> _Fitted:
    """Latency and bytes one after the other."""
    coefficients = nonnegative_fit(design, times, doubts)
    predicted = design @ coefficients
    return _Fitted(_criterion(np.log(times / predicted), len(coefficients)), coefficients, predicted)


def _hidden_in_part(design: Floats, times: Floats, doubts: Floats, exponent: int) -> _Fitted | None:
    """A model in which the shorter one of latency and bytes hides in part behind the other.

    None where latency takes longer than the bytes of every size: then nothing tells their rate.
    """
    logarithms = np.log(design[:, :2])
    start = np.log(times[[0, -1]]) - [logarithms[0, 0], logarithms[-1, 1]]
    given = logarithms, exponent, times, doubts
    found = least_squares(_off, start, _slopes, loss="soft_l1", args=given).x
    latency_s, bytes_s = np.exp(logarithms[-1] + found)
    if bytes_s <= latency_s:
        return None
    predicted = _shares_and_times(found, logarithms, exponent)[1]
    return _Fitted(_criterion(np.log(times / predicted), 2), np.exp(found), predicted, exponent)


def _shares_and_times(found: Floats, logarithms: Floats, exponent: int) -> tuple[Floats, Floats]:
    """The shares of latency and bytes in the p-th power of each time, and the times; `found` is log α and log 1/β."""
    powers = exponent * (logarithms + found)
    whole = np.logaddexp(powers[:, 0], powers[:, 1])
    return np.exp(powers - whole[:, None]), np.exp(whole / exponent)


def _off(found: Floats, logarithms: Floats, exponent: int, times: Floats, doubts: Floats) -> Floats:
    return (_shares_and_times(found, logarithms, exponent)[1] - times) / doubts


def _slopes(found: Floats, logarithms: Floats, exponent: int, times: Floats, doubts: Floats) -> Floats:
    """Of `_off`, by log α and log 1/β."""
    shares, predicted = _shares_and_times(found, logarithms, exponent)
    return shares * (predicted / doubts)[:, None]


def _criterion(residuals: Floats, coefficients: int) -> float:
    """Akaike's corrected criterion; infinite of too few sizes. It compares models of the same sizes."""
    count, parameters = len(residuals), coefficients + 1
    if count <= (parameters if coefficients == 2 else parameters + 1):
        return math.inf
    # Made times fit to the last digit: then the model of fewer parameters is as good.
    mean_square = max(float(np.mean(residuals**2)), EXACT)
    # Four sizes are enough to compare models of two coefficients each: what that costs is the same then.
    return count * math.log(mean_square) + 2 * parameters * count / max(1, count - parameters - 1)


@dataclass(frozen=True)
class LinkAnalysis:
    """What the link between the workers of one world size can do."""

    peaks_bytes_per_s: dict[str, float]
    """Largest bus bandwidth of each collective, as it was measured."""
    models: dict[str, CostModel]
    world_size: int
    hosts: Hosts | None = None
    """The emulated ones between which it was measured."""
    in_turn_s: float | None = None
    """One way of a gather of 1 KiB and the scatter that answers it, in turn; None where that was not timed."""

    def peak(self, *, rooted: bool) -> float | None:
        """The best bus bandwidth (bytes/s) of the collectives through a root, or of the others; None without any.

        Not above what emulated links carry: what they have saved up makes a call up to 9 % quicker (300 Mbit/s).
        """
        peaks, rated = self.peaks_bytes_per_s.items(), self.rated(rooted=rooted)
        found = max((rate for name, rate in peaks if (name in ROOTED) == rooted), default=None)
        return found if found is None or rated is None else min(found, rated.bytes_per_s)

    def rated(self, *, rooted: bool) -> SlowestLink | None:
        """What the emulated links let such a collective carry as TCP payload; None where no rate is known."""
        return None if self.hosts is None else self.hosts.slowest(self.world_size, rooted=rooted)


def analyse_link(record: CommRecord) -> LinkAnalysis:
    """Peaks and cost models of a collective benchmark."""
    size = record.world_size
    curves = {name: curve(record, name) for name in collectives_of(record)}
    models = {name: fit(points, size, record.placement.backend) for name, points in curves.items()}
    return LinkAnalysis(
        peaks_bytes_per_s={name: best for name, points in curves.items() if (best := peak(points)) is not None},
        models={name: model for name, model in models.items() if model is not None},
        world_size=size,
        hosts=record.hosts,
        in_turn_s=in_turn_s(record),
    )


def _doubts_s(times: Floats) -> Floats:
    """How far off the line a time may be (s): by about the fastest call, and by OFF_LINE of itself.

    The spread of a size's samples does not count: what is off is off in all of them (method.md §5 has the numbers).
    """
    doubts: Floats = np.hypot(times.min(), OFF_LINE * times)
    return doubts
