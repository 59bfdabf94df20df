"""Processes that end with the one that started them, however that one ended."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when its parent ends, also after a kill −9 (Linux; else nothing).

    `parent` is the process that started this one: it may have ended while we were importing, and asking the kernel
    for our parent would then name another. Of the *thread* that started us, to be exact (prctl(2)): start children
    from a thread that stays.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, by, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before we had asked
