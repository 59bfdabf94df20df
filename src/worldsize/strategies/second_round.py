"""Collectives that follow others of the same step: the second one of a bucket that takes two."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.futures import Future

from worldsize.strategies.channel import Channel, payload_bytes
from worldsize.strategies.streams import future_on


class SecondRound:
    """The second collective of each bucket, begun when its first one is done, in the order of the buckets.

    First ones end in another order on each rank: ranks that issued their second ones so would wait for different
    messages. None is issued before the one ahead of it, and in a process group of their own, whose order is theirs.
    On a device futures are done when they are issued, so both rounds are issued in one order on all ranks, in one group
    (ranks/setup.py says why); all ranks make one of these together, when they wrap the model.
    """

    def __init__(self, channel: Channel, device: torch.device) -> None:
        """`device` is where the tensors lie."""
        self.channel, self.device = channel, device
        self._group = channel.further_group() if channel.world_size > 1 else None
        self._lock = threading.Lock()
        self._announced = self._issued = 0
        self._waiting: dict[int, Callable[[], None]] = {}

    def all_gather(self, whole: Tensor, first: Future[Any], part: Callable[[], Tensor]) -> Future[Tensor]:
        """Once `first` is done, collect each rank's `part()` in `whole`, in the order of the ranks."""
        token = self.channel.observer.announced("all_gather", payload_bytes(whole))
        return self._after(
            first, part, lambda mine: self.channel.follow_with_all_gather(token, whole, mine, self._group)
        )

    def all_reduce(self, size_bytes: int, first: Future[Any], tensor: Callable[[], Tensor]) -> Future[Tensor]:
        """Once `first` is done, replace `tensor()`, which has so many bytes, by the sum over ranks."""
        token = self.channel.observer.announced("all_reduce", size_bytes)
        return self._after(first, tensor, lambda mine: self.channel.follow_with_all_reduce(token, mine, self._group))

    def _after(
        self, first: Future[Any], make: Callable[[], Tensor], issue: Callable[[Tensor], Future[Tensor]]
    ) -> Future[Tensor]:
        number, self._announced = self._announced, self._announced + 1
        ended: Future[Tensor] = future_on(self.device)

        def begin(made: Tensor) -> None:
            try:
                issued = issue(made)
            except Exception as error:  # torch would print and drop it, and who waits would wait for ever
                ended.set_exception(error)  # type: ignore[arg-type]
                return
            issued.add_done_callback(lambda future: _hand_on(future.value, ended))

        def ready(future: Future[Any]) -> None:
            try:
                future.value()
                made = make()
            except Exception as error:
                self._in_turn(number, lambda: None)  # those after it do not wait for it
                ended.set_exception(error)  # type: ignore[arg-type]
                return
            self._in_turn(number, lambda: begin(made))

        first.add_done_callback(ready)
        return ended

    def _in_turn(self, number: int, begin: Callable[[], None]) -> None:
        """Begin all that are ready, up to the first that is not; one thread at a time."""
        with self._lock:
            self._waiting[number] = begin
            while self._issued in self._waiting:
                self._waiting.pop(self._issued)()
                self._issued += 1


def _hand_on(value: Callable[[], Tensor], to: Future[Tensor]) -> None:
    try:
        to.set_result(value())
    except Exception as error:
        to.set_exception(error)  # type: ignore[arg-type]
