"""Processes that cells in this process have forked, stopped while their cell waits for its turn (method.md §8).

A worker of its own is stopped whole (launch/workers.py). Where cells are threads of one process, only what they fork
can be: a process that stands still does not see that its parent has gone, and only a forked one can be made to end
with it.
"""

import os
import signal
import threading
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import active_children
from typing import Any, ClassVar

from worldsize.parent_death import end_with_parent
from worldsize.results.records import WarningRecord


class ForkedChildren:
    """What each cell has forked by multiprocessing: what is new after its turn is its own."""

    def __init__(self) -> None:
        self._of_cells: dict[str, set[Any]] = {}
        self._left_alone: dict[str, set[str]] = {}

    def go_on(self, cell: str) -> None:
        """Let those of a cell go on; they must, before they are asked to end."""
        _send(signal.SIGCONT, self._of_cells.get(cell, ()))

    def stand_still(self, cell: str) -> None:
        """Stop those of a cell, with those that have begun in its turn."""
        known, alive = set().union(*self._of_cells.values()), active_children()
        own = self._of_cells.setdefault(cell, set())
        own &= set(alive)
        own |= {child for child in alive if child not in known and _method(child) == "fork"}
        self._left_alone.setdefault(cell, set()).update({_method(child) for child in alive} - {"", "fork"})
        _send(signal.SIGSTOP, own)

    def count(self, cell: str) -> int:
        """Return how many processes run that no other cell has forked."""
        others = set().union(*(own for name, own in self._of_cells.items() if name != cell))
        return sum(child not in others for child in active_children())

    def close(self) -> None:
        """Let all go on."""
        for cell in self._of_cells:
            self.go_on(cell)

    def warnings(self, cell: str) -> list[WarningRecord]:
        """Return what a reader of a cell's numbers must know of processes that were started otherwise."""
        methods = self._left_alone.get(cell)
        if not methods:
            return []
        text = (
            f"Steps and data wait are shown too short if a loader is among its processes that were started by "
            f"{' and '.join(sorted(methods))}: they go on while it waits for its turn. Without torchrun they are "
            "stopped; so are those that are forked."
        )
        return [WarningRecord(code="loaders-go-on", message=text)]


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


def _method(child: Any) -> str:
    return getattr(getattr(child, "_popen", None), "method", "")


def _send(number: signal.Signals, children: Iterable[Any]) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            if child.is_alive():
                os.kill(child.pid, number)
