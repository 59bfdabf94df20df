"""The one door through which strategies communicate: every message between workers passes here and is seen.

A strategy asks for a collective; the channel issues it with torch.distributed and tells an observer when it was
issued and when it was done. So the strategies stay free of timing, and no message escapes the timeline.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Observer(Protocol):
    """Who is told of each message (the timeline of a step, in training)."""

    def ready(self) -> Any:
        """A mark of now: a bucket has all of its gradients. `issued` takes it."""

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Any = None) -> int:
        """Note that a message starts now; the token that is returned names it to `done`.

        `blocking` says that the worker computes nothing until the message is done; `ready` is the mark of a bucket.
        """

    def done(self, token: int) -> None:
        """Note that the message with this token is done now; may be called from another thread."""


class Deaf:
    """The observer that notes nothing."""

    def ready(self) -> None:
        """Mark nothing."""

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Any = None) -> int:
        """Return a token that means nothing."""
        return 0

    def done(self, token: int) -> None:
        """Do nothing."""


def payload_bytes(*tensors: Tensor) -> int:
    """Bytes of the elements of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def flat(tensor: Tensor) -> Tensor:
    """A one-dimensional view of a dense tensor's memory, whatever the order of its dimensions.

    The collectives want contiguous memory, and gradients of channels-last weights are dense but permuted.
    All ranks hold the same model, hence the same order. Raises ValueError if the tensor is not dense.
    """
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(by_stride)
    if not ordered.is_contiguous():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()} is not dense")
    return ordered.reshape(-1)


class Channel:
    """Collectives of one rank. In a world of one nothing travels: each call returns at once, unseen."""

    def __init__(self, rank: int, world_size: int, observer: Observer | None = None) -> None:
        self.rank = rank
        self.world_size = world_size
        self.observer: Observer = observer or Deaf()

    @contextmanager
    def message(self, kind: str, size: int) -> Iterator[None]:
        """Everything in this block is one blocking message of `size` bytes."""
        token = self.observer.issued(kind, size, blocking=True)
        yield
        self.observer.done(token)

    def all_reduce(self, tensor: Tensor) -> None:
        """Replace the tensor on every rank by the sum over ranks."""
        if self.world_size > 1:
            with self.message("all_reduce", payload_bytes(tensor)):
                dist.all_reduce(flat(tensor))

    def ready(self) -> Any:
        """Note that a bucket has all of its gradients now; give what is returned to `all_reduce_async`."""
        return self.observer.ready() if self.world_size > 1 else None

    def all_reduce_async(self, tensor: Tensor, ready: Any = None) -> torch.futures.Future[Tensor]:
        """Begin to replace a flat tensor by the sum over ranks; the future holds that tensor when it is done."""
        if self.world_size == 1:
            alone: torch.futures.Future[Tensor] = torch.futures.Future()
            alone.set_result(tensor)
            return alone
        token = self.observer.issued("all_reduce", payload_bytes(tensor), blocking=False, ready=ready)
        work = dist.all_reduce(tensor, async_op=True)

        def finish(future: torch.futures.Future[list[Tensor]]) -> Tensor:
            self.observer.done(token)
            return future.value()[0]

        done: torch.futures.Future[Tensor] = work.get_future().then(finish)
        return done

    def broadcast(self, tensors: Sequence[Tensor], root: int = 0) -> None:
        """Replace the tensors on every rank by those of the root, packed into few messages."""
        if self.world_size > 1 and tensors:
            group = dist.distributed_c10d._get_default_group()
            with self.message("broadcast", payload_bytes(*tensors)):
                # The same packing as DDP's own: small buffers one by one would cost one latency each.
                dist._broadcast_coalesced(group, list(tensors), 250 * 1024 * 1024, root)

    def gather(self, tensor: Tensor, into: Sequence[Tensor] | None, root: int = 0) -> None:
        """Collect the tensor of every rank in `into` (one tensor per rank, on the root; None elsewhere)."""
        if self.world_size > 1:
            with self.message("gather", payload_bytes(tensor)):
                dist.gather(flat(tensor), [flat(part) for part in into] if into else None, dst=root)

    def scatter(self, tensor: Tensor, parts: Sequence[Tensor] | None, root: int = 0) -> None:
        """Give each rank its part (`parts`, one per rank, on the root; None elsewhere) in `tensor`."""
        if self.world_size > 1:
            with self.message("scatter", payload_bytes(tensor)):
                dist.scatter(flat(tensor), [flat(part) for part in parts] if parts else None, src=root)
