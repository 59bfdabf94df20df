"""The few things that are asked of a device that works later than it is told to: events, a second stream, copies.

They are torch's device-neutral calls, so that the same code serves every kind of accelerator; a stand-in whose work a
thread does (tests/support/later.py) has the same methods, so that what stands on them can be tested without a device.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from worldsize.results.memory_records import DeviceMemory


class Event(Protocol):
    """A moment of a stream, which the device has reached or will reach."""

    def query(self) -> bool:
        """Whether the device has reached it."""

    def synchronize(self) -> None:
        """Wait on the host until it has."""

    def elapsed_time(self, end: Any, /) -> float:
        """Milliseconds from here to `end`, in single precision; both must have been reached."""


class Accelerator(Protocol):
    """A device with streams; "the stream" is the one on which the calling thread works at the moment."""

    device: torch.device

    def event(self) -> Event:
        """An event with a time, recorded on the stream."""

    def wait(self, event: Event) -> None:
        """Let what comes after this in the stream wait for the event; the host goes on."""

    def side_stream(self) -> AbstractContextManager[None]:
        """Work on a second stream, beside the first, within this context."""

    def synchronize(self) -> None:
        """Wait on the host until the device has nothing left to do."""

    def pinned(self, like: Tensor) -> Tensor:
        """Memory of the host for such a tensor, from and to which the device can copy by itself."""

    def empty(self, like: Tensor) -> Tensor:
        """Memory of the device for such a tensor."""

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Copy in the stream, between pinned and device memory, of one dtype and layout; the host goes on."""


class TorchAccelerator:
    """A device of torch's, through the calls that are the same for all kinds of them (torch.accelerator, torch.Event).

    https://docs.pytorch.org/docs/stable/accelerator.html
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._second: torch.Stream | None = None

    def event(self) -> Event:
        event = torch.Event(self.device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self.device))
        return event

    def wait(self, event: Event) -> None:
        assert isinstance(event, torch.Event)
        torch.accelerator.current_stream(self.device).wait_event(event)

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        self._second = self._second or torch.Stream(self.device)
        before = torch.accelerator.current_stream(self.device)
        torch.accelerator.set_stream(self._second)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)

    def synchronize(self) -> None:
        torch.accelerator.synchronize(self.device)

    def pinned(self, like: Tensor) -> Tensor:
        return torch.empty_like(like, device="cpu", pin_memory=True)

    def empty(self, like: Tensor) -> Tensor:
        return torch.empty_like(like, device=self.device)

    def copy(self, target: Tensor, source: Tensor) -> None:
        # Another dtype or layout would go through a buffer of torch's, which need not be pinned.
        assert target.dtype == source.dtype
        target.copy_(source, non_blocking=True)


def accelerator_for(device: torch.device) -> Accelerator | None:
    """What works later on this device; None for a CPU, which does at once what it is told."""
    return None if device.type == "cpu" else TorchAccelerator(device)


def wait_for(device: torch.device) -> None:
    """Wait until the device has done all its work; a CPU always has."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def give_back_memory(device: torch.device) -> None:
    """Let others have what the device's allocator keeps without use; a CPU's keeps nothing."""
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


def kept_random_state(device: torch.device) -> AbstractContextManager[None]:
    """Put the random state of the CPU, and of this device, back at the end of the context."""
    on_device = device.type != "cpu"
    return torch.random.fork_rng([device] if on_device else [], device_type=device.type if on_device else "cuda")


def device_memory(device: torch.device) -> DeviceMemory | None:
    """The memory of this worker's device now; None on a CPU, and where the device does not tell."""
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    try:
        return DeviceMemory(
            free_bytes=module.mem_get_info(device)[0],
            reserved_bytes=module.memory_reserved(device),
            peak_reserved_bytes=module.max_memory_reserved(device),
        )
    except (AttributeError, NotImplementedError, RuntimeError):
        return None
