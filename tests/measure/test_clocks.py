"""The host's clock, the device's, and the choice of a clock."""

from itertools import pairwise

import pytest
import torch

from later import LaterDevice, LaterEvent, later_device
from worldsize.measure.clocks import DeviceClock, HostClock, Mark, clock_for

TIE_NS = 20_000
"""How long the host takes to record an event and to hear of it, on the made device."""
US = 1_000


class MadeTime:
    """A host's clock that the test sets, and a device whose clock gains 50 ppm on it; events are reached at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_ns = 7 * 10**9
        self.device = torch.device("cuda")
        monkeypatch.setattr("worldsize.measure.clocks.time.perf_counter_ns", lambda: self.now_ns)
        monkeypatch.setattr("worldsize.measure.clocks.accelerator_for", lambda device: self)

    def event(self) -> LaterEvent:
        self.now_ns += TIE_NS // 2
        event = MadeEvent(self)
        event.at_ns = round(self.now_ns * (1 + 50e-6))
        event.reached.set()
        return event

    def synchronize(self) -> None:
        pass


class MadeEvent(LaterEvent):
    def __init__(self, made: MadeTime) -> None:
        super().__init__(None)  # type: ignore[arg-type]
        self.made = made

    def synchronize(self) -> None:
        self.made.now_ns += TIE_NS // 4


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> MadeTime:
    return MadeTime(monkeypatch)


def test_marks_of_the_host_never_go_back_and_are_read_as_they_are() -> None:
    clock = clock_for(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    marks = [clock.mark() for _ in range(1000)]
    assert marks == sorted(marks)
    assert all(clock.passed(mark) for mark in marks)
    assert [clock.read(mark) for mark in marks] == marks
    assert clock.astray() == (0, 0)


def test_a_device_says_how_far_its_clock_has_gone_astray(made: MadeTime) -> None:
    clock = clock_for(torch.device("cuda"))
    assert isinstance(clock, DeviceClock)
    offset_ns, error_ns = clock.astray()
    assert abs(offset_ns) <= TIE_NS
    assert TIE_NS / 4 <= error_ns <= TIE_NS
    made.now_ns += 600 * 10**9
    offset_ns, error_ns = clock.astray()
    assert offset_ns == pytest.approx(-30_000_000, abs=TIE_NS + 31 * US), "50 ppm of 600 s, and the rounding of 600 s"


def test_a_mark_is_exact_to_a_microsecond_after_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events know milliseconds in single precision: of an hour from one base they would know a quarter of one."""
    now_ns = 7 * 10**9
    monkeypatch.setattr("worldsize.measure.clocks.time.perf_counter_ns", lambda: now_ns)
    with later_device() as device:
        clock = DeviceClock(device)
        begin_ns, device_begin_ns = now_ns, device.now_ns
        marks: list[Mark] = []
        true_ns = []
        for number in range(4_000):  # an hour of steps of 900 ms, and marks that are microseconds apart in each
            now_ns += 900_000 * US + 137 * (number % 7)
            for short_ns in (0, 13_457):
                marks.append(reached(clock, device, device_begin_ns + now_ns - begin_ns + short_ns))
                true_ns.append(now_ns + short_ns)
        device.synchronize()
        read_ns = [clock.read(mark) for mark in marks]
        lengths = [later - earlier for earlier, later in pairwise(read_ns)]
        true = [later - earlier for earlier, later in pairwise(true_ns)]
        assert max(abs(found - wanted) for found, wanted in zip(lengths, true, strict=True)) < US
        # What the rounding of thousands of bases adds up to is told at the end of the turn, as drift is.
        device.now_ns = device_begin_ns + now_ns - begin_ns
        offset_ns, error_ns = clock.astray()
        assert abs(read_ns[-2] + offset_ns - true_ns[-2]) <= error_ns + 5 * US


def reached(clock: DeviceClock, device: LaterDevice, at_ns: int) -> Mark:
    """A mark that the device reaches at this time of its own clock."""

    def now() -> None:
        device.now_ns = at_ns

    device.later(now)
    return clock.mark()


def test_marks_that_the_device_has_not_reached_are_told_and_nothing_waits() -> None:
    with later_device() as device:
        clock = DeviceClock(device)
        device.hold()
        marks = [clock.mark() for _ in range(100)]
        assert not any(clock.passed(mark) for mark in marks)
        device.let_go()
        read_ns = [clock.read(mark) for mark in marks]
    assert read_ns == sorted(read_ns)
    assert all(clock.passed(mark) for mark in marks)
