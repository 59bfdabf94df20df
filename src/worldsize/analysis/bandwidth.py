"""Bandwidths of collectives and the α–β cost model (method.md §5)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from worldsize.analysis.collective_cost import ROOTED, bus_factor, cost_s, steps
from worldsize.analysis.statistics import median_estimate
from worldsize.results.comm_records import CommRecord, CommSample
from worldsize.results.records import Estimate

LEAST_DOUBT = 0.03
"""Relative: a size whose samples happen to agree must not outweigh all others."""
LEAST_R_SQUARED = 0.5
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
    """t(S) = steps·α + factor·S/β, and how well it fits."""

    collective: str
    world_size: int
    alpha_s: float
    """Latency of one step."""
    beta_bytes_per_s: float
    """Rate of the link."""
    r_squared: float
    """Of log t over the sizes: 1 is perfect; in logarithms, or the largest size alone would decide it."""
    smallest_bytes: int
    largest_bytes: int

    def time_s(self, size_bytes: float) -> float:
        """The time that the model predicts for a size."""
        return cost_s(self.collective, self.world_size, self.alpha_s, self.beta_bytes_per_s, size_bytes)


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


def fit(points: Sequence[CurvePoint], world_size: int) -> CostModel | None:
    """Fit α and β (neither below 0) to a curve by weighted least squares; None with fewer than three sizes.

    Each size counts as its own measurement is sure: small messages vary by half, large ones by a percent. None
    also if the times do not grow with the size, so that there is no bandwidth to speak of.
    """
    if len(points) < 3:
        return None
    collective = points[0].collective
    times = np.array([point.time_s.value for point in points])
    sizes = np.array([point.size_bytes for point in points], dtype=np.float64)
    design = np.column_stack(
        [np.full(len(points), steps(collective, world_size)), bus_factor(collective, world_size) * sizes]
    )
    doubt = np.array([_doubt_s(point.time_s) for point in points])
    (alpha, inverse_beta), _ = nnls(design / doubt[:, None], times / doubt)
    if inverse_beta <= 0:
        return None
    predicted = design @ np.array([alpha, inverse_beta])
    residual = np.sum((np.log(times) - np.log(predicted)) ** 2)
    spread = np.sum((np.log(times) - np.log(times).mean()) ** 2)
    return CostModel(
        collective=collective,
        world_size=world_size,
        alpha_s=float(alpha),
        beta_bytes_per_s=float(1 / inverse_beta),
        r_squared=float(1 - residual / spread) if spread else 1.0,
        smallest_bytes=int(sizes[0]),
        largest_bytes=int(sizes[-1]),
    )


@dataclass(frozen=True)
class LinkAnalysis:
    """What the link between the workers of one world size can do."""

    peaks_bytes_per_s: dict[str, float]
    """Largest bus bandwidth of each collective."""
    models: dict[str, CostModel]
    payload_bytes_per_s: float | None
    """What the emulated link can carry as TCP payload; None where its rate is not known."""

    def peak(self, *, rooted: bool) -> float | None:
        """The best bus bandwidth (bytes/s) of the collectives through a root, or of the others; None without any."""
        peaks = self.peaks_bytes_per_s.items()
        return max((rate for name, rate in peaks if (name in ROOTED) == rooted), default=None)


def analyse_link(record: CommRecord) -> LinkAnalysis:
    """Peaks and cost models of a collective benchmark."""
    names = dict.fromkeys(sample.collective for sample in record.ranks[0])
    curves = {name: curve(record, name) for name in names}
    models = {name: fit(points, record.world_size) for name, points in curves.items()}
    peaks = {name: peak(points) for name, points in curves.items()}
    return LinkAnalysis(
        peaks_bytes_per_s={name: value for name, value in peaks.items() if value is not None},
        models={name: model for name, model in models.items() if model is not None},
        payload_bytes_per_s=None if record.hosts is None else record.hosts.payload_bytes_per_s,
    )


def _doubt_s(time_s: Estimate) -> float:
    """How far off a median may be: half its interval, but no less than what separates two runs anyway."""
    half = 0.0 if time_s.low is None or time_s.high is None else (time_s.high - time_s.low) / 2
    return max(half, LEAST_DOUBT * time_s.value)
