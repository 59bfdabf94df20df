"""Loader processes that stand still while their cell does (method.md §8).

Left to themselves they fill their queue while a cell waits for its turn: the next block then begins with batches that
cost it nothing, and a loop that waits for its loader looks like one that computes. They would also take the cores of
the cell whose turn it is.
"""

import os
import signal
import threading
from collections.abc import Callable, Collection, Container, Iterable
from contextlib import suppress
from functools import partial
from multiprocessing import util
from typing import Any, ClassVar, Protocol
from weakref import WeakSet

from torch import multiprocessing

from worldsize.data.forked import sure_to_begin
from worldsize.parent_death import end_with_parent
from worldsize.results.records import WarningRecord


class Process(Protocol):
    """What is needed of a process of Python's multiprocessing."""

    @property
    def pid(self) -> int | None:
        """None before it is started."""

    def is_alive(self) -> bool:
        """Whether it has been started and has not ended."""


class LoaderProcesses:
    """The processes of one rank's loader, over all its epochs."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def options(self, method: str | None) -> dict[str, Any]:
        """What a DataLoader must be given for its processes to be among these; `method` is how they are started."""
        util.get_temp_dir()  # one for all: else each makes its own for its sockets, and leaves it where it is killed
        return {
            "multiprocessing_context": _noting(method, self._started.append),
            # A process that stands still does not see that its parent has gone.
            "worker_init_fn": partial(_end_with, os.getpid()),
        }

    def stand_still(self) -> None:
        """Stop them where they are; what the system reads for them meanwhile is at most a sample each."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them go on from there. They must, before they are asked to end."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        self._started[:] = [process for process in self._started if process.pid is None or process.is_alive()]
        send(number, self._started)


class ForkedLoaders:
    """Processes that a loader of the user's own forks, stopped while the cell waits for its turn.

    What was forked and belongs to none yet becomes that of the first whose processes are to stand still.
    """

    _of_all: ClassVar["WeakSet[Process]"] = WeakSet()

    def __init__(self, counted: Container[Process] = ()) -> None:
        """`counted`: those that somebody else counts. What this thread forks from here on ends with this process."""
        self.most = 0
        """So many of them there were at most, but for those that are `counted` elsewhere."""
        self.left_alone: set[str] = set()
        """How else processes were started, which are not stopped: by `spawn`, `forkserver`."""
        self._counted = counted
        self._own: WeakSet[Process] = WeakSet()
        forks_end_with_this_process()

    def go_on(self) -> None:
        """Let them go on. They must, before they are asked to end."""
        send(signal.SIGCONT, [process for process in forked_children() if process in self._own])

    def stand_still(self) -> None:
        """Stop them where they are, with those that have begun meanwhile."""
        alive = forked_children()
        new = [process for process in alive if process not in self._of_all]
        self._own.update(new)
        self._of_all.update(new)
        own = [process for process in alive if process in self._own]
        send(signal.SIGSTOP, own)
        self.most = max(self.most, sum(process not in self._counted for process in own))
        self.left_alone |= started_otherwise()


def forked_children() -> list[Process]:
    """What this process has forked by multiprocessing, and what has not ended."""
    return [process for process in multiprocessing.active_children() if _method(process) == "fork"]


def started_otherwise() -> set[str]:
    """How else it has started processes that have not ended.

    They are not stopped: what stands still and cannot ask to end with its parent would stay for ever, should the
    command be killed.
    """
    return {_method(process) for process in multiprocessing.active_children()} - {"", "fork"}


def send(number: signal.Signals, processes: Iterable[Process]) -> None:
    """Send a signal to all of them."""
    for process in processes:
        with suppress(ProcessLookupError):
            if process.pid is not None:
                os.kill(process.pid, number)


def loaders_that_go_on(methods: Collection[str], threads: Collection[str]) -> list[WarningRecord]:
    """Where processes of the user's own, started by these methods, go on, or these threads that make batches."""
    told = []
    if methods:
        told.append(
            "Steps and data wait are shown too short if a loader is among its processes that were started by "
            f"{' and '.join(sorted(methods))}: they go on while it waits for its turn, fill their queue, and take "
            'cores of the cell whose turn it is. Those of a DataLoader with multiprocessing_context="fork" are stopped.'
        )
    if threads:
        told.append(
            f"Steps and data wait may be shown too short: its threads that make batches ({', '.join(sorted(threads))}) "
            "feed steps that train and steps that only measure, and make batches for both in turns of either. Let each "
            "call of batches() start threads of its own."
        )
    return [WarningRecord(code="loaders-go-on", message=" ".join(told))] if told else []


class _Forks:
    """Threads of this process whose children end with it."""

    owner = 0
    threads: ClassVar[set[int]] = set()
    now = False


def forks_end_with_this_process() -> None:
    """Let all that this thread forks from here on end with this process, for what stands still does not see it go.

    The kernel ends a child with the thread that has forked it. So only forks of threads that call this end so: those
    that stay as long as the process.
    """
    if not _Forks.owner:
        os.register_at_fork(before=_before_fork, after_in_child=_in_child)
    if _Forks.owner != os.getpid():
        _Forks.owner, _Forks.threads = os.getpid(), set()
    _Forks.threads.add(threading.get_ident())


def _before_fork() -> None:
    _Forks.now = threading.get_ident() in _Forks.threads


def _in_child() -> None:
    if _Forks.now and os.getppid() == _Forks.owner:
        end_with_parent(_Forks.owner)


def _method(process: Any) -> str:
    return getattr(getattr(process, "_popen", None), "method", "")


def _noting(method: str | None, note: Callable[[Process], None]) -> Any:
    """A context of multiprocessing that tells of each process that it makes."""
    base: Any = type(multiprocessing.get_context(method))
    kind: Any = sure_to_begin(base.Process) if method == "fork" else base.Process

    def make(_: Any, *args: Any, **more: Any) -> Process:
        process: Process = kind(*args, **more)
        note(process)
        return process

    return type(base.__name__, (base,), {"Process": make})()


def _end_with(parent: int, worker: int) -> None:
    end_with_parent(parent)
