"""A device that works later than it is told to: a thread does the work of each stream in order, once it is let go.

It has the methods of worldsize's own narrow interface (measure/accelerator.py). Its memory is that of the host, its
clock is made: it runs by `WORK_NS` with each piece of work, and by whatever work says that it takes. Events tell
differences as CUDA's do: milliseconds, in single precision. Waiting for work while the device is held would never end,
so it fails at once: a test that runs through has not waited.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from worldsize.measure.accelerator import Event

WORK_NS = 1_000
PATIENCE_S = 10


class HostWaitedError(AssertionError):
    """The host waited for a device that is held."""


class LaterEvent:
    """A moment of a stream."""

    def __init__(self, device: "LaterDevice") -> None:
        self._device = device
        self.reached = threading.Event()
        self.at_ns = 0

    def query(self) -> bool:
        return self.reached.is_set()

    def synchronize(self) -> None:
        if not self.reached.is_set() and not self._device.going.is_set():
            raise HostWaitedError("an event was waited for that the device has not reached")
        assert self.reached.wait(PATIENCE_S), "the device never came to an event"

    def elapsed_time(self, end: Any, /) -> float:
        assert self.query(), "the device has not reached the first event"
        assert end.query(), "the device has not reached the second event"
        return float(np.float32((end.at_ns - self.at_ns) / 1e6))


class Stream(threading.Thread):
    """Does its work in order, while the device is let go."""

    def __init__(self, device: "LaterDevice") -> None:
        super().__init__(daemon=True)
        self.device = device
        self.work: queue.Queue[Callable[[], None] | None] = queue.Queue()
        self.start()

    def run(self) -> None:
        while (work := self.work.get()) is not None:
            self.device.going.wait()
            try:
                work()
            except Exception as error:  # told at the end of the context
                self.device.failures.append(error)
            with self.device.lock:
                self.device.now_ns += WORK_NS
            self.work.task_done()


class LaterDevice:
    """The device; `start_held` lets it do nothing before `let_go`."""

    def __init__(self, *, start_held: bool = False) -> None:
        self.device = torch.device("cpu")
        self.lock = threading.Lock()
        self.failures: list[Exception] = []
        self.now_ns = 10**15
        self.going = threading.Event()
        if not start_held:
            self.going.set()
        self.streams = (Stream(self), Stream(self))
        self.stream = self.streams[0]
        self.asked = 0
        """How often pinned memory was asked for."""

    def hold(self) -> None:
        """Begin no further work."""
        self.going.clear()

    def let_go(self) -> None:
        """Do the work that there is, and what will come."""
        self.going.set()

    def close(self) -> None:
        """End the threads."""
        self.let_go()
        for stream in self.streams:
            stream.work.put(None)
            stream.join(PATIENCE_S)

    def later(self, work: Callable[[], object], takes_ns: int = 0) -> None:
        """Do something in the stream, which takes so long on the clock of the device."""

        def done() -> None:
            work()
            with self.lock:
                self.now_ns += takes_ns

        self.stream.work.put(done)

    def event(self) -> LaterEvent:
        event = LaterEvent(self)

        def reach() -> None:
            with self.lock:
                event.at_ns = self.now_ns
            event.reached.set()

        self.stream.work.put(reach)
        return event

    def wait(self, event: Event) -> None:
        assert isinstance(event, LaterEvent)
        reached = event.reached

        def held() -> None:
            assert reached.wait(PATIENCE_S), "a stream waits for an event that never comes"

        self.stream.work.put(held)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        before, self.stream = self.stream, self.streams[1]
        try:
            yield
        finally:
            self.stream = before

    def synchronize(self) -> None:
        if not self.going.is_set() and any(stream.work.unfinished_tasks for stream in self.streams):
            raise HostWaitedError("all work of the device was waited for")
        for stream in self.streams:
            stream.work.join()

    def pinned(self, like: Tensor) -> Tensor:
        self.asked += 1
        return torch.full_like(like, -1)

    def empty(self, like: Tensor) -> Tensor:
        return torch.full_like(like, -2)

    def copy(self, target: Tensor, source: Tensor) -> None:
        assert target.dtype == source.dtype

        def done() -> None:
            with torch.no_grad():  # which belongs to a thread
                target.copy_(source)

        self.later(done)


@contextmanager
def later_device(*, start_held: bool = False) -> Iterator[LaterDevice]:
    """Such a device, whose threads end with the context."""
    device = LaterDevice(start_held=start_held)
    try:
        yield device
    finally:
        device.close()
    assert not device.failures, device.failures
