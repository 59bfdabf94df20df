"""Sets of time as sorted, disjoint intervals of integers (nanoseconds): union, intersection, difference, length.

Communication is the *union* of a rank's messages and exposed communication is what of it lies outside compute
(method.md §3); both are one line with these.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Interval = tuple[int, int]
Intervals = list[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """The union of any intervals, sorted and disjoint; empty ones vanish."""
    result: Intervals = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((start, end))
    return result


def intersection(a: Intervals, b: Intervals) -> Intervals:
    """What lies in both unions."""
    result: Intervals = []
    i = j = 0
    while i < len(a) and j < len(b):
        start, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if start < end:
            result.append((start, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return result


def difference(a: Intervals, b: Intervals) -> Intervals:
    """What of union `a` lies outside union `b`."""
    if not a:
        return []
    low, high = a[0][0], a[-1][1]
    edges = [low, *(edge for interval in b for edge in interval), high]
    outside = union(zip(edges[::2], edges[1::2], strict=True))
    return intersection(a, outside)


def length(a: Intervals) -> int:
    """Total length of a union."""
    return sum(end - start for start, end in a)


def union_lengths(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """Length of the union of each row's intervals, in any order: what each adds to those before it."""
    if (begin[:, 1:] < begin[:, :-1]).any():  # mostly they are in order, and sorting many short rows takes long
        order = np.argsort(begin, axis=1, kind="stable")
        begin, end = np.take_along_axis(begin, order, axis=1), np.take_along_axis(end, order, axis=1)
    lengths: NDArray[np.int64] = np.maximum(end[:, 0] - begin[:, 0], 0)
    reached = end[:, 0]
    for k in range(1, begin.shape[1]):
        lengths = lengths + np.maximum(end[:, k] - np.maximum(begin[:, k], reached), 0)
        reached = np.maximum(reached, end[:, k])
    return lengths
