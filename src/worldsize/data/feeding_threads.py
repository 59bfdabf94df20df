"""Threads of the user's own that make batches ahead: they cannot be stopped while their cell waits (method.md §8).

What tells one of them is what it hands over: the training thread takes tensors from a `queue.Queue` into which it has
put them. Threads that log, watch or save hand over none; what torch's own thread pins was made by loader processes.
"""

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Queue
from typing import Any, ClassVar

import numpy as np
from torch import Tensor
from torch.utils._pytree import tree_leaves

TORCHS_OWN = "torch.utils.data"
"""Modules whose threads hand over what others have made."""
_PUT, _GET = Queue.put, Queue.get


class FeedingThreads:
    """Within its context it sees which threads hand batches to the training thread."""

    _looking: ClassVar[list["FeedingThreads"]] = []

    def __init__(self, training: Callable[[], threading.Thread]) -> None:
        """`training` tells which thread trains."""
        self.names: set[str] = set()
        """Those of the threads."""
        self._training = training
        self._put: dict[int, set[str]] = {}

    def __enter__(self) -> "FeedingThreads":
        self._looking.append(self)
        _replace(_put, _get)
        return self

    def __exit__(self, *_: object) -> None:
        self._looking.remove(self)
        if not self._looking:
            _replace(_PUT, _GET)

    def putting(self, queue: "Queue[Any]") -> None:
        """This thread puts something into a queue."""
        if threading.get_ident() != self._training().ident:
            self._put.setdefault(id(queue), set()).add(threading.current_thread().name)

    def got(self, queue: "Queue[Any]", item: Any) -> None:
        """This thread has taken something from a queue."""
        threads = self._put.get(id(queue), set())
        if threading.get_ident() == self._training().ident and not threads <= self.names and _is_batch(item):
            self.names |= threads


def _is_batch(item: Any) -> bool:
    """Whether there are tensors or arrays in it; a single number is none."""
    leaves = (leaf for leaf in tree_leaves(item) if isinstance(leaf, Tensor | np.ndarray))
    return any(leaf.ndim > 0 for leaf in leaves)


def _replace(put: Any, get: Any) -> None:
    Queue.put, Queue.get = put, get  # type: ignore[method-assign]


def _put(queue: "Queue[Any]", *args: Any, **more: Any) -> None:
    if not str(sys._getframe(1).f_globals.get("__name__")).startswith(TORCHS_OWN):
        for each in FeedingThreads._looking:
            with suppress(Exception):  # nothing of ours may end a training
                each.putting(queue)
    _PUT(queue, *args, **more)


def _get(queue: "Queue[Any]", *args: Any, **more: Any) -> Any:
    item = _GET(queue, *args, **more)
    for each in FeedingThreads._looking:
        with suppress(Exception):
            each.got(queue, item)
    return item
