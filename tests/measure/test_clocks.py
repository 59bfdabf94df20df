"""The host's clock, and the choice of a clock."""

import torch

from worldsize.measure.clocks import HostClock, clock_for


def test_marks_of_the_host_never_go_back_and_are_read_as_they_are() -> None:
    clock = clock_for(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    marks = [clock.mark() for _ in range(1000)]
    assert marks == sorted(marks)
    assert all(clock.passed(mark) for mark in marks)
    assert [clock.read(mark) for mark in marks] == marks
