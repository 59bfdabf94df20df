"""Threads of this process that each work for one worker, and threads of libraries that call Python."""

import ctypes
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch


def pinned_thread(name: str, cores: Sequence[int], threads: int) -> ThreadPoolExecutor:
    """A thread that keeps to these cores (none given: to those of the process) and lets torch use so many threads."""

    def pin() -> None:
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)  # 0 is the calling thread, and it alone
        torch.set_num_threads(threads)

    return ThreadPoolExecutor(1, name, initializer=pin)


def threads_as_set() -> None:
    """Let the calling thread compute with as many threads as this process has set.

    torch sets them in each thread when that first asks. Until then MKL takes all cores there, and adds in another
    order: a product of 10 × 4 and 4 × 192 in a thread of gloo's differed in 159 elements from that of the other rank.
    """
    torch.get_num_threads()


_here = threading.local()


def keep_python_state() -> None:
    """Let the calling thread keep the state that Python has for it: called where a backend's thread runs our Python.

    Such a thread gets a new state at each call, with memory of its own, and gives it back at the end: a callback adds
    44 to 52 µs to a message of 1 KiB, 8 to 12 with a state that is kept (two ranks on two cores, gloo, four runs).
    Before Python 3.11.10 a process that is forked while one is made hangs for ever, too
    (https://github.com/python/cpython/issues/112275).
    """
    if not hasattr(_here, "kept"):  # what is local to a thread goes with its state
        ctypes.pythonapi.PyGILState_Ensure()  # never released: the state ends with the interpreter
        _here.kept = True
