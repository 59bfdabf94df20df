"""The interval algebra against sets of points."""

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from worldsize.analysis.intervals import Interval, difference, intersection, length, union

ANY = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=8)
"""Intervals as they come: unsorted, overlapping, touching, empty, and from right to left (which is empty)."""


def points(intervals: Iterable[Interval]) -> set[int]:
    return {point for start, end in intervals for point in range(start, end)}


@given(ANY)
def test_a_union_has_the_points_of_its_intervals(intervals: list[Interval]) -> None:
    assert points(union(intervals)) == points(intervals)


@given(ANY)
@example([(3, 5), (5, 7)])
def test_a_union_is_sorted_with_gaps_in_between(intervals: list[Interval]) -> None:
    edges = [edge for interval in union(intervals) for edge in interval]
    assert edges == sorted(set(edges))


@given(ANY, ANY)
def test_intersection_is_that_of_the_points(a: list[Interval], b: list[Interval]) -> None:
    found = intersection(union(a), union(b))
    assert points(found) == points(a) & points(b)
    assert found == union(found)


@given(ANY, ANY)
def test_difference_is_that_of_the_points(a: list[Interval], b: list[Interval]) -> None:
    found = difference(union(a), union(b))
    assert points(found) == points(a) - points(b)
    assert found == union(found)


@given(ANY)
def test_length_counts_the_points(intervals: list[Interval]) -> None:
    assert length(union(intervals)) == len(points(intervals))
