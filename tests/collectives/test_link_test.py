"""The burst of a link, from counts that are known."""

import pytest

from worldsize.collectives.links import Count, burst

RATE = 1e6


def counts(arrived: list[float]) -> list[Count]:
    """A count every 10 ms of what had arrived by then."""
    return [Count(0.01 * number, 0.01 * number, round(bytes_)) for number, bytes_ in enumerate(arrived)]


def test_a_steady_link_has_a_burst_of_one() -> None:
    assert burst(counts([RATE * 0.01 * number for number in range(50)]), RATE) == pytest.approx(1.0)


def test_what_comes_at_once_is_seen_wherever_it_comes() -> None:
    steady = [RATE * 0.01 * number for number in range(50)]
    for place in (0, 20, 48):
        bursting = [each + (0.05 * RATE if number > place else 0.0) for number, each in enumerate(steady)]
        assert burst(counts(bursting), RATE) == pytest.approx(1.5, rel=0.04)


def test_a_thread_that_loses_its_core_makes_no_burst() -> None:
    steady = [RATE * 0.01 * number for number in range(50)]
    late = counts(steady)
    late[20] = Count(late[20].before_s, late[25].after_s, late[25].bytes)
    assert burst(late, RATE) == pytest.approx(1.0, rel=0.05)


def test_a_test_shorter_than_the_window_says_nothing() -> None:
    assert burst(counts([RATE * 0.01 * number for number in range(8)]), RATE) is None
