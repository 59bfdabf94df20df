"""Batches on their way to the device, and losses on their way back, while the host goes on."""

from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from worldsize.measure.accelerator import Accelerator, Event, accelerator_for

DEPTH = 2
"""Batches that the device has room for: one that a step reads, and one that is copied meanwhile."""
ROWS = 4096
"""Results that one piece of pinned memory takes: to ask for pinned memory can stop the device."""

Kind = tuple[torch.Size, tuple[int, ...], torch.dtype]


class Carrier(Protocol):
    """Between the host and one device."""

    def bring(self, *batch: Tensor) -> tuple[Tensor, ...]:
        """The tensors on the device, for the step that begins; they hold until two further batches were brought."""

    def used(self) -> None:
        """All work that reads the batch that was brought last has been given to the device."""

    def fetch(self, *results: Tensor) -> tuple[Tensor, ...]:
        """Single numbers of the device, in memory of the host: right as soon as a mark that is set now has passed."""


class AtHand:
    """On a CPU nothing has to travel."""

    def bring(self, *batch: Tensor) -> tuple[Tensor, ...]:
        return batch

    def used(self) -> None:
        pass

    def fetch(self, *results: Tensor) -> tuple[Tensor, ...]:
        return results


class _Slot:
    """Room for one batch: pinned on the host, and on the device."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._kinds: list[Kind] = []
        self._pinned: tuple[Tensor, ...] = ()
        self._there: tuple[Tensor, ...] = ()
        self._copied: Event | None = None
        self.used: Event | None = None

    def take(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Copy a batch beside the stream, as soon as nothing reads the one before it; the stream waits for the copy."""
        if self._copied is not None:
            self._copied.synchronize()  # else the copy under way would read the next batch
        kinds = [_kind(tensor) for tensor in batch]
        if kinds != self._kinds:
            self._kinds = kinds
            self._pinned = tuple(self._accelerator.pinned(tensor) for tensor in batch)
            self._there = tuple(self._accelerator.empty(tensor) for tensor in batch)
            self.used = None
        for pinned, tensor in zip(self._pinned, batch, strict=True):
            pinned.copy_(tensor)
        # The device's memory may be that of a tensor which work of the stream still reads: then all of it counts.
        free = self.used or self._accelerator.event()
        self.used = None
        with self._accelerator.side_stream():
            self._accelerator.wait(free)
            for there, pinned in zip(self._there, self._pinned, strict=True):
                self._accelerator.copy(there, pinned)
            self._copied = self._accelerator.event()
        self._accelerator.wait(self._copied)
        return self._there


class Prefetcher:
    """Batches through pinned memory and over a second stream, results into pinned memory: the host waits for neither.

    The host comes to a batch while the device is at the steps before it, so the batch is copied under their work. It
    waits only before it would overwrite a batch whose copy has not ended, two to four steps ahead of the device.
    """

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._slots = [_Slot(accelerator) for _ in range(DEPTH)]
        self._brought = 0
        self._rows: tuple[Tensor, ...] = ()
        self._row = ROWS

    def bring(self, *batch: Tensor) -> tuple[Tensor, ...]:
        self._brought += 1
        return self._slot().take(batch)

    def used(self) -> None:
        self._slot().used = self._accelerator.event()

    def fetch(self, *results: Tensor) -> tuple[Tensor, ...]:
        if self._row == ROWS:
            # What is full lives as long as somebody holds a row of it; torch then hands the same memory out again.
            self._rows = tuple(self._accelerator.pinned(torch.empty(ROWS, dtype=each.dtype)) for each in results)
            self._row = 0
        here = tuple(rows[self._row] for rows in self._rows)
        self._row += 1
        for target, result in zip(here, results, strict=True):
            self._accelerator.copy(target, result)
        return here

    def _slot(self) -> _Slot:
        return self._slots[self._brought % DEPTH]


def carrier_for(device: torch.device) -> Carrier:
    """What carries between the host and this device."""
    accelerator = accelerator_for(device)
    return AtHand() if accelerator is None else Prefetcher(accelerator)


def _kind(tensor: Tensor) -> Kind:
    return tensor.shape, tensor.stride(), tensor.dtype


def brought(carrier: Carrier, batch: Any) -> Any:
    """A batch with all its tensors on the device, and all else in it as it is; nothing is converted."""
    if isinstance(carrier, AtHand):
        return batch
    leaves, structure = tree_flatten(batch)
    tensors = iter(carrier.bring(*(leaf for leaf in leaves if isinstance(leaf, Tensor))))
    return tree_unflatten([next(tensors) if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure)


def on_device(batch: Any, device: torch.device) -> Any:
    """The same at once, without a carrier."""
    return tree_map_only(Tensor, lambda tensor: tensor.to(device), batch)
