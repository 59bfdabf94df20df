"""Collectives that follow others of the same step: the second one of a bucket that takes two."""

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from worldsize.strategies.channel import ALL_GATHER, Channel, payload_bytes
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

        def issue(mine: Tensor) -> Any:
            return ALL_GATHER(whole, mine, group=self._group, async_op=True)

        return self._after(first, "all_gather", whole, part, issue)

    def all_reduce(self, size_bytes: int, first: Future[Any], tensor: Callable[[], Tensor]) -> Future[Tensor]:
        """Once `first` is done, replace `tensor()`, which has so many bytes, by the sum over ranks."""

        def issue(mine: Tensor) -> Any:
            return dist.all_reduce(mine, group=self._group, async_op=True)

        return self._after(first, "all_reduce", size_bytes, tensor, issue)

    def _after(
        self,
        first: Future[Any],
        kind: str,
        result: Tensor | int,
        make: Callable[[], Tensor],
        issue: Callable[[Tensor], Any],
    ) -> Future[Tensor]:
        size = result if isinstance(result, int) else payload_bytes(result)
        token = self.channel.observer.announced(kind, size)
        number, self._announced = self._announced, self._announced + 1
        ended: Future[Tensor] = future_on(self.device)

        def begin(made: Tensor) -> None:
            self.channel.observer.followed(token)
            try:
                seen = self.channel.seen(token, issue(made), made if isinstance(result, int) else result)
            except Exception as error:  # torch would print and drop it, and who waits would wait for ever
                ended.set_exception(error)  # type: ignore[arg-type]
                return
            seen.add_done_callback(lambda future: _hand_on(future.value, ended))

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
