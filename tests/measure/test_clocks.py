"""The host's clock, the device's, and the choice of a clock."""

from typing import Any, Self

import pytest
import torch

from worldsize.measure.clocks import DeviceClock, HostClock, clock_for

TIE_NS = 20_000
"""How long the host takes to record an event and to hear of it, on the made device."""


class MadeDevice:
    """A device whose clock gains 50 ppm on the host's; work takes no time."""

    now_ns = 0

    @classmethod
    def host_ns(cls) -> int:
        return cls.now_ns

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            MadeDevice.now_ns += TIE_NS // 2
            self.device_ns = MadeDevice.now_ns * (1 + 50e-6)

        def synchronize(self) -> None:
            MadeDevice.now_ns += TIE_NS // 2

        def query(self) -> bool:
            return True

        def elapsed_time(self, other: Self) -> float:
            return (other.device_ns - self.device_ns) / 1e6


@pytest.fixture
def made_device(monkeypatch: pytest.MonkeyPatch) -> type[MadeDevice]:
    def nothing(device: object) -> Any:
        return None

    MadeDevice.now_ns = 7 * 10**9
    monkeypatch.setattr("worldsize.measure.clocks.time.perf_counter_ns", MadeDevice.host_ns)
    monkeypatch.setattr(torch.cuda, "Event", MadeDevice.Event)
    monkeypatch.setattr(torch.cuda, "synchronize", nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", nothing)
    return MadeDevice


def test_marks_of_the_host_never_go_back_and_are_read_as_they_are() -> None:
    clock = clock_for(torch.device("cpu"))
    assert isinstance(clock, HostClock)
    marks = [clock.mark() for _ in range(1000)]
    assert marks == sorted(marks)
    assert all(clock.passed(mark) for mark in marks)
    assert [clock.read(mark) for mark in marks] == marks
    assert clock.astray() == (0, 0)


def test_a_device_says_how_far_its_clock_has_gone_astray(made_device: type[MadeDevice]) -> None:
    clock = clock_for(torch.device("cuda"))
    assert isinstance(clock, DeviceClock)
    offset_ns, error_ns = clock.astray()
    assert abs(offset_ns) <= 2
    assert TIE_NS / 2 <= error_ns <= TIE_NS / 2 + 1
    made_device.now_ns += 600 * 10**9
    offset_ns, error_ns = clock.astray()
    assert offset_ns == pytest.approx(-30_000_000, abs=10), "50 ppm of 600 s"
    mark = clock.mark()
    assert abs(clock.read(mark) + offset_ns - made_device.now_ns) <= error_ns
