"""A clock that stands still while a command is stopped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.commands.turn_clock import TurnClock


def clock(*edges_ns: int) -> TurnClock:
    """Turns from the first of these moments to the second, from the third to the fourth …; the last may go on."""
    found = TurnClock()
    for place, moment in enumerate(edges_ns):
        (found.end if place % 2 else found.begin)(moment)
    return found


def told(found: TurnClock, *moments_ns: int) -> list[int]:
    return [int(each) for each in found.told(np.array(moments_ns, np.int64))]


def test_moments_of_turns_lie_behind_each_other() -> None:
    three = clock(1000, 1100, 5000, 5010, 9000)
    assert told(three, 1000, 1050, 1099) == [1000, 1050, 1099]
    assert told(three, 5001, 5009) == [1101, 1109]
    assert told(three, 9000, 9001, 10**15) == [1110, 1111, 10**15 - 9000 + 1110]


@pytest.mark.parametrize("moment", [1100, 1101, 3000, 4999, 5000])
def test_a_moment_in_a_stop_or_at_its_edges_is_that_of_the_stop(moment: int) -> None:
    """What a process marks between the signal and its stop is a few µs late."""
    assert told(clock(1000, 1100, 5000, 5010), moment) == [1100]
    assert told(clock(1000, 1100, 5000), moment) == [1100]


def test_what_lies_before_the_first_turn_or_behind_the_last() -> None:
    two = clock(1000, 1100, 5000, 5010)
    assert told(two, 0, 999, 5010, 5011, 10**15) == [1000, 1000, 1110, 1110, 1110]


def test_a_step_that_spans_a_stop_has_its_time_in_turn() -> None:
    begin, end = told(clock(1000, 1100, 5000, 5010, 9000), 1090, 9003)
    assert end - begin == 10 + 10 + 3


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=20, unique=True), st.data())
def test_it_runs_in_turns_and_stands_still_between_them(edges: list[int], data: st.DataObject) -> None:
    edges = sorted(edges)
    found = clock(*edges)
    moments = sorted(data.draw(st.lists(st.integers(0, 10**12), min_size=2, max_size=20)))
    # In how much of each turn a moment has passed, turn by turn.
    ends = [*edges[1::2], *([10**13] if len(edges) % 2 else [])]
    passed = [
        edges[0] + sum(max(0, min(moment, end) - begin) for begin, end in zip(edges[::2], ends, strict=True))
        for moment in moments
    ]
    assert told(found, *moments) == passed
    assert found.in_turn_s == pytest.approx(sum(b - a for a, b in zip(edges[::2], edges[1::2], strict=False)) / 1e9)
