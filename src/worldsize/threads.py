"""Threads of this process that each work for one worker."""

import os
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
