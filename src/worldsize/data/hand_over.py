"""Where threads hand something over in Python: the methods of queues and thread pools, while somebody watches them."""

import os
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from functools import partial
from multiprocessing import queues
from queue import Queue
from typing import Any, Protocol
from weakref import WeakKeyDictionary

TORCHS_OWN = "torch.utils.data"
"""Modules whose threads hand over what others have made."""


class Taking(Protocol):
    """A thread takes something."""

    def waiting(self) -> AbstractContextManager[None]:
        """Within it waits for that."""

    def took(self, item: Any) -> None:
        """It has it."""


class Watcher(Protocol):
    """Sees what is handed over by queues and pools; nothing that it raises ends a training."""

    def giving(self, by: Any) -> None:
        """This thread is about to hand something over; it is held until this returns."""

    def gave(self, by: Any) -> None:
        """It is handed over."""

    def asking(self, by: Any) -> None:
        """This thread asks for something that it will take."""

    def taking(self, by: Any) -> Taking:
        """This thread is about to take something."""


_watchers: list[Watcher] = []
_pools: WeakKeyDictionary["Future[Any]", ThreadPoolExecutor] = WeakKeyDictionary()
"""Of what was asked for, and not taken yet."""


def watch(watcher: Watcher) -> None:
    """Tell this one of what is handed over in this process, and no other, until `unwatch`."""
    _watchers[:] = [watcher]
    _replace(_SEEING)


def unwatch() -> None:
    """All is as it was."""
    _watchers.clear()
    _replace(_ORIGINAL)


def _given(by: Any, give: Callable[[], None]) -> None:
    for watcher in _watchers:
        with suppress(Exception):
            watcher.giving(by)
    give()
    for watcher in _watchers:
        with suppress(Exception):
            watcher.gave(by)


def _taken(by: Any, take: Callable[[], Any]) -> Any:
    taking = None
    for watcher in _watchers:
        with suppress(Exception):
            taking = watcher.taking(by)
    if taking is None:
        return take()
    with taking.waiting():
        item = take()
    with suppress(Exception):
        taking.took(item)
    return item


def _put(queue: "Queue[Any]", *args: Any, **more: Any) -> None:
    put = _ORIGINAL[Queue, "put"]
    if str(sys._getframe(1).f_globals.get("__name__")).startswith(TORCHS_OWN):
        put(queue, *args, **more)
    else:
        _given(queue, lambda: put(queue, *args, **more))


def _get(queue: "Queue[Any]", *args: Any, **more: Any) -> Any:
    return _taken(queue, lambda: _ORIGINAL[Queue, "get"](queue, *args, **more))


def _get_of_processes(queue: Any, *args: Any, **more: Any) -> Any:
    return _taken(queue, lambda: _ORIGINAL[queues.Queue, "get"](queue, *args, **more))


def _submit(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **more: Any) -> "Future[Any]":
    for watcher in _watchers:
        with suppress(Exception):
            watcher.asking(pool)
    submit = _ORIGINAL[ThreadPoolExecutor, "submit"]
    future: Future[Any] = submit(pool, partial(_work, pool, fn), *args, **more)
    _pools[future] = pool
    return future


def _work(pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Any:
    result = fn(*args, **more)
    _given(pool, lambda: None)
    return result


def _result(future: "Future[Any]", timeout: float | None = None) -> Any:
    result, pool = _ORIGINAL[Future, "result"], _pools.get(future)
    if pool is None:
        return result(future, timeout)
    item = _taken(pool, lambda: result(future, timeout))
    _pools.pop(future, None)  # it is there, and may be asked for again
    return item


_SEEING: dict[tuple[Any, str], Any] = {
    (Queue, "put"): _put,
    (Queue, "get"): _get,
    (queues.Queue, "get"): _get_of_processes,
    (ThreadPoolExecutor, "submit"): _submit,
    (Future, "result"): _result,
}
_ORIGINAL = {(owner, name): getattr(owner, name) for owner, name in _SEEING}


def _replace(functions: dict[tuple[Any, str], Any]) -> None:
    for (owner, name), function in functions.items():
        setattr(owner, name, function)


def _in_child() -> None:
    """A process that this one forks has threads of its own, and locks of this one's may be held for ever there."""
    if _watchers:
        unwatch()


os.register_at_fork(after_in_child=_in_child)
