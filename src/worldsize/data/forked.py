"""Forked loader processes that begin: one that hangs before its first line is forked again.

A fork copies the locks of threads that the child does not have. Before Python 3.11.10 a child hangs where a thread of
the backend was just being made known to the interpreter (https://github.com/python/cpython/issues/112275), as threads
of gloo are after each collective, for a moment: 1 of 100 runs of `worldsize verify`, four at a time on two cores, then
waited for its first batch for ever.
"""

import os
import select
import sys
from typing import Any

import psutil
from torch import multiprocessing

from worldsize.errors import DataError

PATIENCE_S = 0.2
"""How long after its fork a child must not be asleep before it has begun: one that has only to wait for a core, or for
memory, is not."""
FORKS = 5
"""How often it is tried."""


def forking() -> Any:
    """Return a context of multiprocessing whose processes are forked and begin; the system's own if it is not Linux.

    Samples from a file that the user named cannot be sent to a process that knows nothing of it.
    """
    if sys.platform != "linux":
        return multiprocessing.get_context()
    base: Any = type(multiprocessing.get_context("fork"))
    kind = sure_to_begin(base.Process)
    return type(base.__name__, (base,), {"Process": kind})()


def sure_to_begin(base: type[Any]) -> type[Any]:
    """A kind of process of multiprocessing that is forked, as `base` is, until it begins.

    Its start raises DataError where none of FORKS does.
    """

    class Begun(base):  # type: ignore[misc] # multiprocessing's types hide what it is
        """A process whose parent goes on when it has begun."""

        def run(self) -> None:
            os.close(self.hears)
            os.write(self.says, b".")
            os.close(self.says)
            super().run()

        @staticmethod
        def _Popen(process: Any) -> Any:  # noqa: N802 - the name that multiprocessing gives to what starts a process
            for _ in range(FORKS):
                process.hears, process.says = os.pipe()
                child, begun = None, False
                try:
                    child = _forked(base, process)
                    begun = _begins(child.pid, process.hears)
                finally:
                    os.close(process.hears)
                    if child and not begun:  # also at Ctrl-C: it has not asked yet to end with its parent
                        _kill(child)
                if begun:
                    return child
            raise DataError(
                f"a process of the loader hung as it began, {FORKS} times in a row\n"
                "Use --loader-workers 0, or Python 3.11.10 or later."
            )

    return Begun


def _kill(child: Any) -> None:
    child.kill()
    child.wait()
    child.close()


def _forked(base: type[Any], process: Any) -> Any:
    try:
        return base._Popen(process)  # the child does not return from it
    finally:
        os.close(process.says)  # else the end of a child would not be seen


def _begins(child: int, hears: int) -> bool:
    """Wait until a child has begun, or has ended; False where it never will."""
    heard = select.poll()  # `select` takes no descriptor above 1023
    heard.register(hears, select.POLLIN)
    while not heard.poll(1e3 * PATIENCE_S):
        if psutil.Process(child).status() == psutil.STATUS_SLEEPING:
            return False
    return True
