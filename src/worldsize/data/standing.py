"""Loader processes that stand still while their cell does (method.md §8).

Left to themselves they fill their queue while a cell waits for its turn: the next block then begins with batches that
cost it nothing, and a loop that waits for its loader looks like one that computes. They would also take the cores of
the cell whose turn it is.
"""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import util
from typing import Any, Protocol

from torch import multiprocessing

from worldsize.data.forked import sure_to_begin
from worldsize.parent_death import end_with_parent


class Process(Protocol):
    """What is needed of a process of Python's multiprocessing."""

    pid: int | None

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
        for process in self._started:
            with suppress(ProcessLookupError):
                if process.pid is not None:
                    os.kill(process.pid, number)


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
