"""The collectives of a script that knows nothing of us: DDP's buckets, and calls of torch.distributed.

DDP's buckets are seen by its communication hook
(https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html), all others by wrapped functions, which FSDP2 calls as well.
Each process group numbers its collectives, so the number that was missed is known.
"""

from __future__ import annotations

import functools
import inspect
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from .harmless import never_raises
from .marks import OF_SOME_RANKS
from .patches import Patches
from .states import keep_python_state

if TYPE_CHECKING:
    from .watch import Marks

T = TypeVar("T")
KINDS = {
    "all_reduce": ("all_reduce", "tensor"),
    "broadcast": ("broadcast", "tensor"),
    "reduce": ("reduce", "tensor"),
    "all_gather": ("all_gather", "tensor_list"),
    "all_gather_into_tensor": ("all_gather", "output_tensor"),
    "all_gather_single": ("all_gather", "output_tensor"),
    "reduce_scatter": ("reduce_scatter", "input_list"),
    "reduce_scatter_tensor": ("reduce_scatter", "input"),
    "reduce_scatter_single": ("reduce_scatter", "input"),
    "gather": ("gather", "tensor"),
    "scatter": ("scatter", "tensor"),
    "all_to_all": ("all_to_all", "input_tensor_list"),
    "all_to_all_single": ("all_to_all", "input"),
    "barrier": ("barrier", ""),
}
"""Function of torch.distributed → the kind of the message, and the argument whose bytes it moves (method.md §5)."""


class Collectives:
    """Tells a timeline of every collective that it can see."""

    def __init__(self, timeline: Marks, patches: Patches, gave_up: Callable[[Exception], None]) -> None:
        self.timeline = timeline
        self._patches, self._gave_up = patches, gave_up
        self.broken = False
        self._here = threading.local()
        self._before = self._accounted = 0
        self.active = True
        """Hooks of DDP stay when all else is put back: DDP cannot unregister them. Then they only reduce."""
        self.seen = self.unseen = 0
        """Collectives of all steps, or of those since `forget`."""

    def forget(self) -> None:
        """Count anew."""
        self.seen = self.unseen = 0

    def begin(self) -> None:
        """A step begins that does not follow another one."""
        self._before, self._accounted = numbered(), 0

    def end(self) -> int:
        """How many collectives of the step were not seen; the next one begins."""
        now = numbered()
        unseen = now - self._before - self._accounted
        if not now:  # nothing was joined
            return 0
        self.seen += self._accounted
        self._before, self._accounted = now, 0
        if unseen <= 0:
            return 0
        self.unseen += unseen
        return unseen

    def part_of_one(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Call what is part of a message that is noted: nothing that it calls is noted by itself."""
        if self._inside:
            return call(*args, **kwargs)
        before, self._here.within = numbered(), True
        try:
            return call(*args, **kwargs)
        finally:
            self._here.within = False
            self._accounted += max(0, numbered() - before)

    def account_for_one(self) -> None:
        """DDP itself is known to issue one from C++, which is not timed: which parameters were used, 4 bytes each."""
        self._accounted += 1

    @property
    def _inside(self) -> bool:
        return bool(getattr(self._here, "within", False))

    @property
    def watching(self) -> bool:
        """Whether a call that comes now is a message to note."""
        return self.active and self.timeline.watching and not self._inside

    @never_raises
    def kind_in(self, group: Any, kind: str) -> str | None:
        """The kind of a message in a group of ranks; None where this rank is not in it, and so sends nothing."""
        if group is None:
            return kind
        size = dist.get_world_size(group)
        if size == dist.get_world_size():
            return kind
        return f"{kind}{OF_SOME_RANKS}" if size > 0 else None

    @never_raises
    def issued(self, kind: str, moved: Any, *, blocking: bool, ready: Any = None) -> int:
        """Note that a message of these tensors is issued.

        In a backward the last one that does not block tells when all gradients were there: a hook on each parameter
        would take 2 µs a gradient.
        """
        token = self.timeline.issued(kind, bytes_of(moved), blocking=blocking, ready=ready)
        if not blocking:
            self.timeline.last_gradient(ready or self.timeline.ready())
        return token

    @never_raises
    def done(self, token: int | None) -> None:
        """Note that a message is done, if it was noted that it was issued."""
        if token is not None:
            self.timeline.done(token)

    @never_raises
    def done_with(self, work: Any, token: int | None) -> None:
        """Note that a message is done when its work is."""

        def finish(_: Any) -> None:
            self.done(token)
            keep_python_state()

        work.get_future().then(finish)

    def fail(self, error: Exception) -> None:
        """Something went wrong in us: see no message any more, and hand it on."""
        self.broken, self.active = True, False
        self._gave_up(error)

    def wrap_functions(self) -> None:
        """See the calls of torch.distributed's functions."""
        found = ((getattr(dist, name, None), kind, payload) for name, (kind, payload) in KINDS.items())
        self._patches.replace_everywhere(
            [(original, self._wrapped(original, kind, payload)) for original, kind, payload in found if original]
        )

    def _wrapped(self, original: Callable[..., Any], kind: str, payload: str) -> Callable[..., Any]:
        # To bind the arguments to the signature took 6 of the 26 µs that this added to a call.
        places = {name: place for place, name in enumerate(inspect.signature(original).parameters)}

        def given(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            place = places.get(name, len(args))
            return args[place] if place < len(args) else kwargs.get(name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self.watching:  # what is compiled in counts as unseen
                return original(*args, **kwargs)
            kind_here = self.kind_in(given("group", args, kwargs), kind)
            if kind_here is None:
                return original(*args, **kwargs)
            waits = not given("async_op", args, kwargs)
            token = self.issued(kind_here, given(payload, args, kwargs), blocking=waits)
            work = self.part_of_one(original, *args, **kwargs)
            if waits or work is None:
                self.done(token)
            else:
                self.done_with(work, token)
            return work

        return called

    @never_raises
    def hook(self, model: DistributedDataParallel) -> bool:
        """See the buckets of a DDP; False where that cannot be, because it has a communication hook already.

        A hook that is registered later is called by ours, as DDP takes only one.
        """
        if getattr(model, "_comm_hooks", None) or getattr(model, "mixed_precision", None) is not None:
            return False
        buckets = Buckets(self, model)
        try:
            model.register_comm_hook(None, buckets.reduce)
        except RuntimeError:  # of an earlier metering: DDP cannot unregister it
            return False
        finally:
            model._comm_hooks.clear()  # a loop may copy its model, or save it whole, and nothing of us with it
        self._of_one(model, "register_comm_hook", buckets.take_another)
        self._see_buffers(model)
        return True

    def _see_buffers(self, model: DistributedDataParallel) -> None:
        """The broadcast of buffers in DDP's forward, by a method that is private in torch: there is no other way."""
        original = getattr(model, "_default_broadcast_coalesced", None)
        if original is None:
            return

        kind = self.kind_in(model.process_group, "broadcast") or "broadcast"

        def broadcast(*args: Any, **kwargs: Any) -> None:
            token = self.issued(kind, model.modules_buffers, blocking=True) if self.watching else None
            self.part_of_one(original, *args, **kwargs)
            self.done(token)

        self._of_one(model, "_default_broadcast_coalesced", broadcast)

    def _of_one(self, model: DistributedDataParallel, name: str, call: Callable[..., Any]) -> None:
        """Replace a method for this model, in its class: what is in the model itself is copied and saved with it."""
        original = getattr(DistributedDataParallel, name)

        @functools.wraps(original)
        def method(this: DistributedDataParallel, *args: Any, **kwargs: Any) -> Any:
            return call(*args, **kwargs) if this is model else original(this, *args, **kwargs)

        self._patches.replace(DistributedDataParallel, name, method)


class Buckets:
    """The communication hook of one DDP: reduces as DDP does, or as the user's own hook does, and notes when."""

    def __init__(self, seen: Collectives, model: DistributedDataParallel) -> None:
        self._seen = seen
        self._group = model.process_group
        self._kind = seen.kind_in(self._group, "all_reduce") or "all_reduce"
        self._looks_for_unused = model.find_unused_parameters and not model.static_graph
        self._hook: Callable[[Any, dist.GradBucket], torch.futures.Future[Tensor]] = self._as_without_a_hook
        self._state: Any = None

    def take_another(self, state: object, hook: Callable[[Any, Any], torch.futures.Future[Tensor]]) -> None:
        """In place of DDP's `register_comm_hook`, while ours is there."""
        self._state, self._hook = state, hook

    def reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Called by DDP when all gradients of a bucket are there."""
        seen = self._seen
        if not seen.watching:
            return self._hook(self._state, bucket)
        ready = seen.timeline.ready()
        token = seen.issued(self._kind, bucket.buffer(), blocking=False, ready=ready)
        future = seen.part_of_one(self._hook, self._state, bucket)
        if bucket.is_last() and self._looks_for_unused:
            seen.account_for_one()

        def finish(done: torch.futures.Future[Tensor]) -> Tensor:
            seen.done(token)
            keep_python_state()
            return done.value()

        return future.then(finish)

    def _as_without_a_hook(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        """Average as DDP does without a hook: divide, then all-reduce."""
        tensor = bucket.buffer().div_(self._group.size())
        work: Any = self._seen.part_of_one(dist.all_reduce, tensor, group=self._group, async_op=True)
        reduced: torch.futures.Future[Tensor] = work.get_future().then(lambda future: future.value()[0])
        return reduced


# DDP reads them, and a text is no class to it.
Buckets.reduce.__annotations__.update({"bucket": dist.GradBucket, "return": torch.futures.Future[Tensor]})


def processes() -> int:
    """How many processes train together: those of the group, or as a launcher's variables say where there is none."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE", 1))


def numbered() -> int:
    """How many collectives this process has issued, over all groups; 0 where groups do not number them."""
    try:
        groups: Any = dist.distributed_c10d._world.pg_map
        return sum([group._get_sequence_number_for_group() for group in list(groups)]) if groups else 0
    except (AttributeError, RuntimeError):
        return 0


def bytes_of(value: Any) -> int:
    """Bytes of a tensor, or of all tensors in a list; 0 of what is neither."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(bytes_of, value)) if isinstance(value, (list, tuple)) else 0
