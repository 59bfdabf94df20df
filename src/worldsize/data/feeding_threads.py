"""Threads of the user's own that make batches ahead, held while their cell waits for its turn (method.md §8).

A thread cannot be stopped where it is, as a process can. It is held where it hands over its next batch: in `put` of a
`queue.Queue`, or where it ends a work item of a `ThreadPoolExecutor`. Which threads these are is seen by what they hand
over: the training thread takes tensors or arrays. Threads that log, watch or save hand over none.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext, suppress
from multiprocessing import queues
from queue import Empty, Queue
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

TORCHS_OWN = "torch.utils.data"
"""Modules whose threads hand over what others have made."""
PATIENCE_S = 20.0
"""How long the training thread waits for a batch while threads that feed it are held: what it waits for may need one of
them. They are let go for good then."""
_MOVED = threading.Condition()
"""Notified where threads that were held may go on; its lock guards what is seen."""


class Channel:
    """What threads hand something over by: a queue, or a pool."""

    def __init__(self) -> None:
        self.makers: WeakSet[threading.Thread] = WeakSet()
        """Those that have put something into it."""
        self.takers: WeakSet[threading.Thread] = WeakSet()
        """Those that have taken something from it, but for the training thread."""


class FeedingThreads:
    """Within its context it sees which threads hand batches to the training thread, and holds them when told to."""

    def __init__(
        self,
        training: Callable[[], threading.Thread],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`training` tells which thread trains; within `waiting()` this one waits for a batch."""
        self.training, self.waiting = training, waiting
        self.awake = True
        self.most = 0
        """So many threads that feed there were at most when they were to stand still."""
        self.ready = self.ready_before = 0
        """So many items lay ready in their queues then, and when they last went on."""
        self.taken = 0
        """So many the training thread has taken since they last went on."""
        self.shared: set[str] = set()
        """Names of those that make batches for others as well while these stand still."""
        self._holds = True
        self.feeding: WeakSet[Channel] = WeakSet()
        """By which the training thread gets batches."""
        self.held: set[Channel] = set()
        """Those, and by which their threads get what they make batches of, while all of them stand still."""

    def __enter__(self) -> "FeedingThreads":
        _SEEN.looking.append(self)
        _replace(_SEEING)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()
        _SEEN.looking.remove(self)
        if not _SEEN.looking:
            _replace(_ORIGINAL)

    def go_on(self) -> None:
        """Let them go on."""
        with _MOVED:
            self.awake = True
            self.ready_before, self.taken = self.ready, 0
            self.held.clear()
            _MOVED.notify_all()

    def stand_still(self) -> None:
        """Hold each of them where it hands over its next batch."""
        with _MOVED:
            self.awake = False
            feeding = _SEEN.upstream(self.feeding)
            self.most = max(self.most, sum(maker.is_alive() for maker in _makers(feeding)))
            self.ready = _SEEN.ready(feeding)
            if self._holds:
                self.held = feeding

    def let_all_go(self) -> None:
        """Hold none of them any more: the training thread waits for one of them."""
        with _MOVED:
            self._holds = False
            self.shared |= {maker.name for maker in _makers(self.held)}
            self.held.clear()
            _MOVED.notify_all()


class _Seen:
    """What is handed over in this process, and who looks at it."""

    def __init__(self) -> None:
        self.looking: list[FeedingThreads] = []
        self.pools: WeakKeyDictionary[Future[Any], ThreadPoolExecutor] = WeakKeyDictionary()
        self._channels: WeakKeyDictionary[Any, Channel] = WeakKeyDictionary()
        """By queue or pool."""

    def given(self, by: Any) -> None:
        """This thread is about to hand something over by a queue or pool: it waits while that is not wanted."""
        thread, channel = threading.current_thread(), self._channel(by)
        if any(each.training() is thread for each in self.looking):
            return
        if thread not in channel.makers:
            with _MOVED:
                channel.makers.add(thread)
        if self._is_held(channel):  # without the lock as a rule: a loop may hand over each sample by itself
            with _MOVED:
                _MOVED.wait_for(lambda: not self._is_held(channel))

    def wanted(self, by: Any) -> FeedingThreads | None:
        """This thread is about to take something; who feeds it, if it is the one that trains.

        Threads may feed steps that train and steps that only measure: they go on where either takes something.
        """
        thread, channel = threading.current_thread(), self._channel(by)
        mine = [each for each in self.looking if each.training() is thread]
        if not mine:
            if thread not in channel.takers:
                with _MOVED:
                    channel.takers.add(thread)
            return None
        for each in self.looking:
            if not each.awake and channel in each.feeding:
                with _MOVED:
                    each.feeding.discard(channel)
                    each.held -= self.upstream([channel])
                    if isinstance(by, ThreadPoolExecutor):  # what else it was asked for is made as well
                        each.shared |= {maker.name for maker in channel.makers}
                    _MOVED.notify_all()
        return next((each for each in mine if each.awake), mine[0])

    def got(self, by: Any, item: Any, feeding: FeedingThreads) -> None:
        """The training thread has taken something."""
        channel = self._channel(by)
        if channel not in feeding.feeding and _is_batch(item):
            with _MOVED:
                feeding.feeding.add(channel)
        feeding.taken += channel in feeding.feeding

    def feeds(self, by: Any) -> bool:
        """Whether a training thread has taken a batch by it."""
        return any(self._channels.get(by) in each.feeding for each in self.looking)

    def let_all_go(self) -> None:
        """Hold no thread of this training thread any more."""
        for each in self.looking:
            if each.held and each.training() is threading.current_thread():
                each.let_all_go()

    def upstream(self, channels: Iterable[Channel]) -> set[Channel]:
        """These, and all by which their makers get what they make batches of."""
        found: set[Channel] = set()
        new = set(channels)
        while new:
            found |= new
            makers = _makers(new)
            new = {each for each in self._channels.values() if not makers.isdisjoint(each.takers)} - found
        return found

    def ready(self, channels: set[Channel]) -> int:
        """How much lies in these of them that are queues, of processes as well."""
        lying = 0
        for by, each in self._channels.items():
            if each in channels and isinstance(by, Queue | queues.Queue):
                with suppress(NotImplementedError):  # macOS does not tell of those of processes
                    lying += by.qsize()
        return lying

    def _is_held(self, channel: Channel) -> bool:
        return any(channel in each.held for each in self.looking)

    def _channel(self, by: Any) -> Channel:
        found = self._channels.get(by)
        if found is None:
            with _MOVED:
                found = self._channels.setdefault(by, Channel())
        return found


_SEEN = _Seen()


def _makers(channels: Iterable[Channel]) -> set[threading.Thread]:
    return {maker for each in channels for maker in each.makers}


def _is_batch(item: Any) -> bool:
    """Whether there are tensors or arrays in it; a single number is none."""
    leaves = (leaf for leaf in tree_leaves(item) if isinstance(leaf, Tensor | np.ndarray))
    return any(leaf.ndim > 0 for leaf in leaves)


def _taken(by: Any, take: Callable[[float | None], Any], limit_s: float | None) -> Any:
    """What `take` gives, which waits for at most `limit_s`; its training thread does not wait for who is held."""
    feeding = None
    with suppress(Exception):  # nothing of ours may end a training
        feeding = _SEEN.wanted(by)
    if feeding is None:
        return take(limit_s)
    with feeding.waiting() if _SEEN.feeds(by) else nullcontext():
        try:
            item = take(PATIENCE_S if limit_s is None else limit_s)
        except (Empty, TimeoutError):
            if limit_s is not None:
                raise
            if isinstance(by, Queue):  # what a pool was asked for may be no batch, such as compiled code
                _SEEN.let_all_go()
            item = take(None)
    with suppress(Exception):
        _SEEN.got(by, item, feeding)
    return item


def _put(queue: "Queue[Any]", *args: Any, **more: Any) -> None:
    if not str(sys._getframe(1).f_globals.get("__name__")).startswith(TORCHS_OWN):
        with suppress(Exception):
            _SEEN.given(queue)
    _ORIGINAL[Queue, "put"](queue, *args, **more)


def _get(queue: "Queue[Any]", block: bool = True, timeout: float | None = None) -> Any:
    get = _ORIGINAL[Queue, "get"]
    return _taken(queue, lambda limit_s: get(queue, block, limit_s), timeout if block else 0.0)


def _get_of_processes(queue: Any, block: bool = True, timeout: float | None = None) -> Any:
    get = _ORIGINAL[queues.Queue, "get"]
    return _taken(queue, lambda limit_s: get(queue, block, limit_s), timeout if block else 0.0)


def _submit(pool: ThreadPoolExecutor, /, *args: Any, **more: Any) -> "Future[Any]":
    future: Future[Any] = _ORIGINAL[ThreadPoolExecutor, "submit"](pool, *args, **more)
    _SEEN.pools[future] = pool
    return future


def _set_result(future: "Future[Any]", result: Any) -> None:
    with suppress(Exception):
        if (pool := _SEEN.pools.get(future)) is not None:
            _SEEN.given(pool)
    _ORIGINAL[Future, "set_result"](future, result)


def _result(future: "Future[Any]", timeout: float | None = None) -> Any:
    result, pool = _ORIGINAL[Future, "result"], _SEEN.pools.get(future)
    return result(future, timeout) if pool is None else _taken(pool, lambda limit_s: result(future, limit_s), timeout)


_SEEING: dict[tuple[Any, str], Any] = {
    (Queue, "put"): _put,
    (Queue, "get"): _get,
    (queues.Queue, "get"): _get_of_processes,
    (ThreadPoolExecutor, "submit"): _submit,
    (Future, "set_result"): _set_result,
    (Future, "result"): _result,
}
_ORIGINAL = {(owner, name): getattr(owner, name) for owner, name in _SEEING}


def _replace(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        setattr(owner, name, function)


def _in_child() -> None:
    """A process that this one forks has threads of its own, and the lock may be held for ever there."""
    if _SEEN.looking:
        _SEEN.looking.clear()
        _replace(_ORIGINAL)


os.register_at_fork(after_in_child=_in_child)
