"""The sign of life of a rank: how much it has begun, and where it is, for the process that watches over the job.

A rank that waits for another one in a collective looks exactly like one that hangs, but for its stack. So each rank
counts what it begins in a small file, and leaves its stack in another one when it is asked by a signal.
"""

import faulthandler
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

ASK = signal.SIGUSR1
"""Asks a rank for its stack."""


class Heartbeat:
    """Counts what a rank begins; until it is opened, it does nothing."""

    def __init__(self) -> None:
        self._file = -1
        self._count = 0
        self._stack: BinaryIO | None = None

    def open(self, pulse: Path, stack: Path) -> None:
        """Count in the file `pulse` from here on; leave the stack of each thread in `stack` when asked."""
        self._stack = stack.open("wb")
        faulthandler.register(ASK, file=self._stack, all_threads=True)
        self._file = os.open(pulse, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        self.beat()

    def beat(self) -> None:
        """Something begins: a step, a batch, a file. About a microsecond, so it may stand beside what is timed."""
        if self._file >= 0:
            self._count += 1
            with suppress(OSError):  # a full disk is told by those who need it
                os.pwrite(self._file, b"%d %d\n" % (os.getpid(), self._count), 0)


_PULSE = Heartbeat()
open_heartbeat = _PULSE.open
beat = _PULSE.beat
