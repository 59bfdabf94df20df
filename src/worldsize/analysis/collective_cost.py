"""What a collective costs by its formula (method.md §5); needs no library, for each worker imports it."""

from math import ceil, log2

ROOTED = ("gather", "scatter")
"""Collectives for which the rate is the utilisation of the root's link, not busbw."""


def bus_factor(collective: str, world_size: int) -> float:
    """busbw ÷ algbw (method.md §5, the convention of nccl-tests); N−1 for a root's link."""
    n = world_size
    if collective == "all-reduce":
        return 2 * (n - 1) / n
    if collective in ("all-gather", "reduce-scatter"):
        return (n - 1) / n
    if collective in ROOTED:
        return n - 1
    return 1.0


def steps(collective: str, world_size: int) -> int:
    """Messages one after the other on the way of a collective: a ring's, a tree's, or the root's."""
    n = world_size
    if collective == "all-reduce":
        return 2 * (n - 1)
    if collective == "broadcast":
        return ceil(log2(n))
    return n - 1


def cost_s(collective: str, world_size: int, alpha_s: float, beta_bytes_per_s: float, size_bytes: float) -> float:
    """t(S) = steps·α + factor·S/β in seconds (method.md §5)."""
    return steps(collective, world_size) * alpha_s + bus_factor(collective, world_size) * size_bytes / beta_bytes_per_s
