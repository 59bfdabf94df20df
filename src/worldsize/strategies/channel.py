"""The one door through which strategies communicate: every message between workers passes here and is seen.

A strategy asks for a collective; the channel issues it with torch.distributed and tells an observer when it was
issued and when it was done. So the strategies stay free of timing, and no message escapes the timeline.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from worldsize.hook.states import keep_python_state
from worldsize.threads import threads_as_set


class Observer(Protocol):
    """Who is told of each message (the timeline of a step, in training)."""

    def ready(self) -> Any:
        """A mark of now: a bucket has all of its gradients. `issued` takes it."""

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Any = None) -> int:
        """Note that a message starts now; the token that is returned names it to `done`.

        `blocking` says that the worker computes nothing until the message is done; `ready` is the mark of a bucket.
        """

    def announced(self, kind: str, payload_bytes: int) -> int:
        """Note that a message will follow another one; the token that is returned names it to `followed` and `done`.

        It has its place among the messages of the step from here on, the same on every rank, whenever it is issued.
        """

    def followed(self, token: int) -> None:
        """Note that an announced message is issued now; may be called from another thread."""

    def awaited(self, token: int) -> None:
        """Note that the worker computes nothing from now on until the message with this token is done."""

    def done(self, token: int) -> None:
        """Note that the message with this token is done now; may be called from another thread."""


class NullObserver:
    """The observer that notes nothing."""

    def ready(self) -> None:
        """Mark nothing."""

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: Any = None) -> int:
        """Return a token that means nothing."""
        return 0

    def announced(self, kind: str, payload_bytes: int) -> int:
        """Return a token that means nothing."""
        return 0

    def followed(self, token: int) -> None:
        """Do nothing."""

    def awaited(self, token: int) -> None:
        """Do nothing."""

    def done(self, token: int) -> None:
        """Do nothing."""


def payload_bytes(*tensors: Tensor) -> int:
    """Bytes of the elements of the tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def flat(tensor: Tensor) -> Tensor:
    """A one-dimensional view of a dense tensor's memory, in any order of its dimensions.

    The collectives want contiguous memory, and gradients of channels-last weights are dense but permuted.
    All ranks hold the same model, hence the same order. Raises ValueError if the tensor is not dense.
    """
    if tensor.is_contiguous():  # nearly always, and a third of the time
        return tensor.view(-1)
    by_stride = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
    ordered = tensor.permute(by_stride)
    if not ordered.is_contiguous():
        raise ValueError(f"a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()} is not dense")
    return ordered.reshape(-1)


def completed(tensor: Tensor) -> Future[Tensor]:
    """A future that is done."""
    future: Future[Tensor] = Future()
    future.set_result(tensor)
    return future


# torch 2.13 has renamed both, and warns where the old names are called.
_ALL_GATHER: Callable[..., Any] = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_REDUCE_SCATTER: Callable[..., Any] = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class Awaited(dist.Work):
    """A message under way; whoever waits for it is seen to."""

    def __init__(self, work: Any, wait: Callable[[], None]) -> None:
        super().__init__()
        self._work, self._wait = work, wait

    def wait(self, *timeout: Any) -> bool:
        """Wait until it is done; on a device let the current stream wait."""
        self._wait()
        return bool(self._work.wait(*timeout))


class Channel:
    """Collectives of one rank.

    In a world of one nothing travels: each call returns at once, unseen, but those of shards (`all_gather_async`,
    `reduce_scatter`), which no strategy needs there.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        observer: Observer | None = None,
        further_group: Callable[[], dist.ProcessGroup | None] = dist.new_group,
    ) -> None:
        """`further_group` gives another group of the same processes, or None for the same one; all ask together."""
        self.rank = rank
        self.world_size = world_size
        self.observer: Observer = observer or NullObserver()
        self.further_group = further_group

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

    def all_reduce_async(self, tensor: Tensor, ready: Any = None) -> Future[Tensor]:
        """Begin to replace a flat tensor by the sum over ranks; the future holds that tensor when it is done."""
        return self._begun("all_reduce", tensor, lambda: dist.all_reduce(tensor, async_op=True), ready)

    def all_to_all_async(self, into: Tensor, tensor: Tensor, ready: Any = None) -> Future[Tensor]:
        """Begin to send each rank its equal share of a flat tensor; the future holds `into`, a share of each rank."""
        return self._begun("all_to_all", into, lambda: dist.all_to_all_single(into, tensor, async_op=True), ready)

    def all_gather_async(self, whole: Tensor, part: Tensor, group: dist.ProcessGroup | None = None) -> "Awaited":
        """Begin to collect each rank's flat `part` in `whole`, in the order of the ranks."""
        token = self.observer.issued("all_gather", payload_bytes(whole), blocking=False)
        work = _ALL_GATHER(whole, part, group=group, async_op=True)
        self._seen(token, work, whole)
        return Awaited(work, lambda: self.observer.awaited(token))

    def reduce_scatter(
        self, part: Tensor, whole: Tensor, op: Any, *, blocking: bool, group: dist.ProcessGroup | None = None
    ) -> None:
        """Give each rank its part of the ranks' flat tensors, reduced by `op`.

        Not `blocking`: on a stream of the device that no computing waits for.
        """
        token = self.observer.issued("reduce_scatter", payload_bytes(whole), blocking=blocking)
        _REDUCE_SCATTER(part, whole, op=op, group=group)
        self.observer.done(token)

    def _begun(self, kind: str, result: Tensor, issue: Callable[[], Any], ready: Any) -> Future[Tensor]:
        if self.world_size == 1:
            return completed(result)
        token = self.observer.issued(kind, payload_bytes(result), blocking=False, ready=ready)
        return self._seen(token, issue(), result)

    def _seen(self, token: int, work: Any, result: Tensor) -> Future[Tensor]:
        def finish(future: Future[list[Tensor]]) -> Tensor:
            self.observer.done(token)
            keep_python_state()
            threads_as_set()
            future.value()  # raises what the collective has raised
            return result

        done: Future[Tensor] = work.get_future().then(finish)
        return done

    def follow_with_all_gather(
        self, token: int, whole: Tensor, part: Tensor, group: dist.ProcessGroup | None
    ) -> Future[Tensor]:
        """Begin a message that was announced with this token: collect each rank's `part` in `whole`."""
        self.observer.followed(token)
        return self._seen(token, _ALL_GATHER(whole, part, group=group, async_op=True), whole)

    def follow_with_all_reduce(self, token: int, tensor: Tensor, group: dist.ProcessGroup | None) -> Future[Tensor]:
        """Begin a message that was announced with this token: replace the tensor by the sum over ranks."""
        self.observer.followed(token)
        return self._seen(token, dist.all_reduce(tensor, group=group, async_op=True), tensor)

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
