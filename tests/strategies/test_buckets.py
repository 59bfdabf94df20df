"""Which gradients travel together."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from worldsize.sending import Cost, by_cost
from worldsize.sending import end_s as end_of
from worldsize.strategies.bucketed import by_size, sizes_of

BYTES = 4


def parameters(*elements: int) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(count)) for count in elements]


def elements(groups: list[list[nn.Parameter]]) -> list[list[int]]:
    return [[parameter.numel() for parameter in group] for group in groups]


@pytest.mark.parametrize(
    ("size", "groups"),
    [
        (1, [[3], [1], [2], [5]]),
        (4 * BYTES, [[3, 1], [2, 5]]),
        (5 * BYTES, [[3, 1, 2], [5]]),
        (1000, [[3, 1, 2, 5]]),
    ],
)
def test_a_group_is_closed_once_it_reaches_the_size(size: int, groups: list[list[int]]) -> None:
    assert elements(by_size(parameters(3, 1, 2, 5), size)) == groups


def end_s(groups: list[list[nn.Parameter]], ready_s: list[float], cost_s: Cost) -> float:
    every = [parameter for group in groups for parameter in group]
    numbers = iter(range(len(every)))
    return end_of([[next(numbers) for _ in group] for group in groups], sizes_of(every), ready_s, cost_s)


def test_messages_on_a_link_follow_each_other() -> None:
    first, second, third = parameters(1, 2, 3)
    # Ready at 5, sent until 5+4; ready at 6 but the link is taken until 9, then two more take until 9+20.
    assert end_s([[first], [second, third]], [5, 6, 6], lambda size: float(size)) == 29


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 40)), min_size=1, max_size=7), st.integers(0, 60))
def test_no_other_grouping_ends_earlier(gradients: list[tuple[int, int]], latency: int) -> None:
    counts, gaps = zip(*gradients, strict=True)
    every = parameters(*counts)
    ready = [float(sum(gaps[: i + 1])) for i in range(len(gaps))]

    def cost(size: int) -> float:
        return latency + size / BYTES

    found = [[every[number] for number in group] for group in by_cost(sizes_of(every), ready, cost)]
    assert [id(p) for group in found for p in group] == [id(p) for p in every]
    assert end_s(found, ready, cost) == min(end_s(groups, ready, cost) for groups in groupings(every))


def groupings(every: list[nn.Parameter]) -> list[list[list[nn.Parameter]]]:
    """All ways to cut a list into consecutive groups."""
    inner = range(1, len(every))
    cuts = [(0, *chosen, len(every)) for count in range(len(every)) for chosen in combinations(inner, count)]
    return [[every[a:b] for a, b in pairwise(places)] for places in cuts]
