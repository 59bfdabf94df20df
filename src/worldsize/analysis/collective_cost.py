"""What a collective costs by its formula, and how long the benchmark of them takes at least (method.md §5).

Needs no heavy library: each worker imports it.
"""

import math
from itertools import product
from math import ceil, log2

from worldsize.config import CommSettings

SEGMENT_BYTES = 2**20
"""The largest segment of gloo's ring."""
ROOTED = ("gather", "scatter")
"""Collectives for which the rate is the utilisation of the root's link, not busbw."""
IN_TURN = "gather+scatter"
"""A gather and the scatter that answers it, timed together at the smallest size: each waits for the one before it."""
START_S = 2.0
"""No job starts in less: each worker loads torch."""
TURN_S = 0.001
"""No sample takes less, with the way to the ranks and back."""
ENDING_S = 0.5
"""What of a budget goes into ending the workers and making the tables."""


def bus_factor(collective: str, world_size: int) -> float:
    """busbw ÷ algbw (method.md §5, the convention of nccl-tests); N−1 for a root's link."""
    n = world_size
    if collective == "all-reduce":
        return 2 * (n - 1) / n
    if collective in ("all-gather", "reduce-scatter", "all-to-all"):
        return (n - 1) / n
    if collective in ROOTED:
        return n - 1
    if collective == IN_TURN:
        return 2 * (n - 1)
    return 1.0


def steps(collective: str, world_size: int) -> int:
    """Messages one after the other on the way of a collective: a ring's, a tree's, or the root's."""
    n = world_size
    if collective == "all-reduce":
        return 2 * (n - 1)
    if collective == IN_TURN:
        return 2  # to the root and back, all workers side by side
    if collective == "broadcast":
        return ceil(log2(n))
    return n - 1


def as_run(collective: str, backend: str) -> str:
    """The collective whose messages a backend really sends: gloo's reduce-scatter is an all-reduce of all S bytes.

    Counted on the wire: twice the bytes that busbw counts for a reduce-scatter (method.md §5).
    """
    return "all-reduce" if (collective, backend) == ("reduce-scatter", "gloo") else collective


def wire_factor(collective: str, world_size: int, backend: str) -> float:
    """Bytes on the wire ÷ those that busbw counts: 2 for gloo's reduce-scatter, else 1."""
    return bus_factor(as_run(collective, backend), world_size) / bus_factor(collective, world_size)


def further_segments(collective: str, world_size: int, size_bytes: float) -> int:
    """Segments that a rank of gloo's ring sends beyond the two of each step that are always there; else 0.

    S is cut into segments of at most 1 MiB, as many for each rank and at least two (gloo/allreduce.cc, `ring`).
    """
    if collective != "all-reduce":
        return 0
    for_each = max(2, ceil(ceil(size_bytes / SEGMENT_BYTES) / world_size))
    return steps(collective, world_size) * (for_each - 2)


def cost_s(
    collective: str,
    world_size: int,
    alpha_s: float,
    beta_bytes_per_s: float,
    size_bytes: float,
    segment_s: float = 0.0,
    exponent: int = 1,
) -> float:
    """t(S) = ((steps·α)^p + (further segments·γ + factor·S/β)^p)^(1/p) in seconds (method.md §5).

    γ is `segment_s`, p `exponent`.
    """
    bytes_s = further_segments(collective, world_size, size_bytes) * segment_s
    bytes_s += bus_factor(collective, world_size) * size_bytes / beta_bytes_per_s
    return together_s(steps(collective, world_size) * alpha_s, bytes_s, exponent)


def together_s(latency_s: float, bytes_s: float, exponent: int) -> float:
    """Latency and bytes of one message: their sum where p is 1, and the nearer to the longer one the larger p is."""
    return float((latency_s**exponent + bytes_s**exponent) ** (1 / exponent))


def sizes_up_to(top_bytes: int) -> list[int]:
    """Sizes from 1 KiB by fours, and the top itself."""
    sizes = [1024 * 4**k for k in range(20) if 1024 * 4**k < top_bytes]
    return [*sizes, top_bytes]


def timed_sizes(settings: CommSettings) -> list[tuple[str, int]]:
    """Each collective at each size; where both ways through a root are asked for, also both in turn."""
    names = dict.fromkeys(settings.collectives)
    sizes = sizes_up_to(settings.top_bytes)
    both = [(IN_TURN, sizes[0])] if names.keys() >= set(ROOTED) else []
    return [*product(names, sizes), *both]


def least_s(settings: CommSettings) -> float:
    """Start, turns, and the bytes of one call of each size over emulated links (method.md §5)."""
    hosts, n = settings.emulated, settings.world_size
    rate = None if hosts is None else hosts.payload_bytes_per_s
    delay_s = 0.0 if hosts is None or hosts.latency_s is None else hosts.latency_s
    least = START_S + ENDING_S
    for name, size in timed_sizes(settings):
        wire_s = 0.0 if rate is None else bus_factor(name, n) * size / rate
        least += TURN_S + wire_s + steps(name, n) * delay_s
    return least


def roomy_budget(settings: CommSettings) -> str:
    """A budget that leaves time for more than one call of each size, as the flag takes it."""
    return f"{math.ceil(2 * least_s(settings))}s"
