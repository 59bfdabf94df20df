"""A step as events, where the answer follows from a line of arithmetic."""

from math import inf

import numpy as np
import pytest

from worldsize.analysis.predict.observed import Compute, on_the_line
from worldsize.analysis.predict.simulate import Computing, Message, Network, Outcome, simulate

FREE = Network(1e12)


def alike(ranks: int, before: float = 1.0, backward: float = 10.0, after: float = 0.5) -> Computing:
    return Computing(*(np.full(ranks, part) for part in (before, backward, after)))


def run(computing: Computing, messages: list[Message], network: Network = FREE) -> Outcome:
    return simulate(np.zeros(len(computing.before_s)), computing, messages, network)


def test_without_messages_a_step_is_its_computing() -> None:
    assert run(alike(3), []).ends_s.tolist() == [11.5] * 3


def test_blocking_messages_come_one_after_the_other() -> None:
    messages = [Message(inf, 2.0, 1.0), Message(inf, 3.0, 1.0)]
    found = run(alike(2), messages)
    assert found.ends_s.tolist() == [16.5] * 2
    assert found.exposed_s == 5.0


def test_a_message_under_backward_costs_nothing() -> None:
    found = run(alike(2), [Message(0.2, 3.0, 1.0)])
    assert found.ends_s.tolist() == [11.5] * 2
    assert found.exposed_s == 0.0


def test_of_the_last_message_the_rest_is_exposed() -> None:
    # Ready at 1 + 9, done at 13; computing ends at 11.
    found = run(alike(2), [Message(0.9, 3.0, 1.0)])
    assert found.ends_s.max() == pytest.approx(13.5)
    assert found.exposed_s == pytest.approx(2.0)


def test_two_messages_that_want_the_whole_link_share_it() -> None:
    # Both ready at 11, each alone 4 s at the full rate of 1 byte/s: together 8.
    found = run(alike(2), [Message(1.0, 4.0, 4.0), Message(1.0, 4.0, 4.0)], Network(1.0))
    assert found.exposed_s == pytest.approx(8.0)


def test_two_messages_of_latency_do_not_hinder_each_other() -> None:
    found = run(alike(2), [Message(1.0, 4.0, 0.1), Message(1.0, 4.0, 0.1)], Network(1.0))
    assert found.exposed_s == pytest.approx(4.0)


def test_a_third_message_waits_for_a_thread() -> None:
    found = run(alike(2), [Message(1.0, 4.0, 0.1)] * 3, Network(1.0))
    assert found.exposed_s == pytest.approx(8.0)


def test_the_last_rank_decides_once_for_all_buckets() -> None:
    """A maximum is never added per bucket: a rank that is late by 2 makes the step longer by 2."""
    late = Computing(np.array([1.0, 3.0]), np.array([10.0, 10.0]), np.array([0.5, 0.5]))
    buckets = [Message(share, 0.5, 0.1) for share in (0.25, 0.5, 0.75, 1.0)]
    assert run(late, buckets).ends_s.max() - run(alike(2), buckets).ends_s.max() == pytest.approx(2.0)


def test_what_messages_take_of_computing() -> None:
    # From 6 on 4 s of messages at half speed: 2 s of computing are lost.
    found = run(alike(2), [Message(0.5, 4.0, 1.0)], Network(1e9, slowdown=0.5))
    assert found.ends_s.max() == pytest.approx(13.5)
    assert found.slowed_s == pytest.approx(2.0)


def test_a_broadcast_before_forward_waits_for_its_root_alone() -> None:
    starts = np.array([-1.0, 0.0])
    ends = simulate(starts, alike(2), [Message(-inf, 0.25, 1.0)], FREE).ends_s
    assert ends.tolist() == [0.25 + 10.5, 0.25 + 11.5]
    assert simulate(np.array([0.0, -1.0]), alike(2), [Message(-inf, 0.25, 1.0)], FREE).ends_s.tolist() == [11.75] * 2


@pytest.mark.parametrize(
    ("batch", "backward_s"), [(12, 1.5), (80, 2.0 + 7.0 * 64 / 1008), (1024, 9.0), (2032, 16.0), (4, 0.5)]
)
def test_computing_lies_on_the_line_between_the_batches_on_both_sides(batch: int, backward_s: float) -> None:
    """80 is nearer to 8 than to 1024 on a scale of ratios, and lies between 16 and 1024."""
    known = {size: Compute(0.0, s, 0.0) for size, s in {8: 1.0, 16: 2.0, 1024: 9.0}.items()}
    assert on_the_line(known, batch).backward_s == pytest.approx(backward_s)


def test_more_samples_take_no_less_time_beyond_the_measured_ones() -> None:
    """Backward of 128 samples seemed quicker than that of 64: what grows from there on is the rest alone."""
    known = {64: Compute(1.0, 8.0, 0.0), 128: Compute(2.0, 4.0, 0.0)}
    assert on_the_line(known, 96) == Compute(1.5, 6.0, 0.0)
    assert on_the_line(known, 32) == Compute(0.5, 8.0, 0.0)
    assert on_the_line(known, 256) == Compute(4.0, 4.0, 0.0)


def test_computing_that_was_never_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="measured at no batch"):
        on_the_line({}, 8)
