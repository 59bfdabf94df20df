"""Processes that were stopped while they hold a file lock: another cell, or another command, may need it."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

LOCK_PATIENCE_S = 2.0
"""How long a process that holds a file lock may take to release it, when it is to be stopped."""


def release_locks(is_ours: Callable[[int], bool]) -> set[int]:
    """Let those of the stopped processes that are ours go on until they hold no file lock, then stop them again.

    Returns those that will not release their lock.
    """
    until_s = time.monotonic() + LOCK_PATIENCE_S
    while holding := {process for process in lock_holders() if is_ours(process)}:
        if time.monotonic() > until_s:
            return holding
        for process in holding:
            send(process, signal.SIGCONT)
        while holding & lock_holders() and time.monotonic() < until_s:
            time.sleep(1e-4)
        for process in holding:
            send(process, signal.SIGSTOP)
    return set()


def lock_holders() -> set[int]:
    """Return the processes that hold a file lock (proc(5), /proc/locks); empty where the system does not tell."""
    try:
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    words = (line.split() for line in lines)
    return {int(each[4]) for each in words if len(each) > 4 and each[1] != "->" and each[4].isdecimal()}


def send(process: int, number: int) -> None:
    """Send a signal to a process that may be gone, or another user's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)
