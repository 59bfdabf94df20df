"""The marks of a rank, in memory that is its file: whoever kills the program loses 2 ms of steps, or the present one.

A system call a step would take 6 µs of it. Room is asked for in advance, so that a full disk is an error here, and no
SIGBUS in the program.
"""

from __future__ import annotations

import gc
import mmap
import os
import struct
from itertools import count
from time import monotonic_ns
from typing import Any

from .marks import (
    BEGIN,
    BLOCKING,
    DONE,
    GARBAGE,
    INTERRUPTED,
    ISSUED,
    KINDS,
    OF_SOME_RANKS,
    PHASES,
    READY,
    RECORD,
    ROOM,
    SOME_RANKS,
    STEP,
    STRETCH,
)

SHORT_NS = 2_000_000
"""Steps that end within this time are written together: to write takes a third of the 20 µs that a step may cost."""
LONG_NS = 1_000_000
"""Garbage that is collected in less time than this is not noted."""
_PHASE = {name: place for place, name in enumerate(PHASES)}
_KIND = {name: place for place, name in enumerate(KINDS)}
FIELDS = 6
"""Of a record."""
_PACKS: dict[int, struct.Struct] = {}
"""What packs so many records at once."""


class Stream:
    """Takes the marks of a `Watch`, on the host's monotonic clock; writes them once a step."""

    def __init__(self) -> None:
        self.watching = False
        """Whether marks are taken: not before `open`, as only after a step it is known which rank this is."""
        self._file = -1
        self._end = self._used = self._keep_ns = self._begun_ns = 0
        self._room: Any = None
        self._marks: list[int] = []
        """Fields of the records since the last step; threads of a backend add theirs too, a whole record at a time."""
        self._add = self._marks.extend
        self._tokens = count()
        self._last_gradient: int | None = None
        self._collecting_ns = 0

    def open(self, path: str) -> None:
        """Take marks from now on, and write them there; raises OSError where that cannot be."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._room = self._next_room()
        self._add((self._begun_ns, 0, 0, 0, 0, BEGIN))
        gc.callbacks.append(self._collected)
        self.watching = True

    def close(self) -> None:
        """Write what is left; take no more."""
        if self.watching:
            self.watching = False
            gc.callbacks.remove(self._collected)
            while self._marks:
                self._keep()

    def forget(self) -> None:
        """Take and write nothing any more: of a process that was forked, whose marks these are not."""
        self.watching = False
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def begin(self) -> None:
        """Note when the first step begins; each other one begins where the one before it ends."""
        if not self.watching:
            self._begun_ns = monotonic_ns()

    def end_step(self) -> None:
        """Do nothing: `stepped` marks the end, and what the step was."""

    def stepped(self, number: int, samples: int, unseen: int, *, interrupted: bool) -> None:
        """Mark that a step ends, with what is known of it."""
        if self.watching:
            now_ns = monotonic_ns()
            self._add((now_ns, samples, number, min(unseen, 0xFFFF), INTERRUPTED if interrupted else 0, STEP))
            if now_ns > self._keep_ns:
                self._keep()
                self._keep_ns = now_ns + SHORT_NS

    def stretch(self, name: str) -> None:
        """Mark that a stretch of the step ends."""
        if self.watching:
            self._add((monotonic_ns(), 0, 0, _PHASE[name], 0, STRETCH))

    def backward_over(self) -> None:
        """Mark that a backward ends; since its last gradient the rank has computed nothing."""
        last, self._last_gradient = self._last_gradient, None
        if self.watching:
            if last is not None:
                self._add((last, 0, 0, _PHASE["backward"], 0, STRETCH))
            name = "backward" if last is None else "after_backward"
            self._add((monotonic_ns(), 0, 0, _PHASE[name], 0, STRETCH))

    def last_gradient(self, mark: int | None) -> None:
        """Take a mark as that of the last gradient so far."""
        self._last_gradient = mark

    def ready(self) -> int:
        """Mark that a bucket has all of its gradients."""
        return monotonic_ns()

    def issued(self, kind: str, payload_bytes: int, *, blocking: bool, ready: int | None = None) -> int:
        """Mark that a message is issued."""
        token = next(self._tokens) & 0xFFFFFFFF
        if self.watching:
            flags, plain = BLOCKING if blocking else 0, kind
            if kind.endswith(OF_SOME_RANKS):
                flags, plain = flags | SOME_RANKS, kind[: -len(OF_SOME_RANKS)]
            if ready is not None:
                self._add((ready, 0, token, 0, 0, READY))
            self._add((monotonic_ns(), payload_bytes, token, _KIND.get(plain, 0), flags, ISSUED))
        return token

    def done(self, token: int) -> None:
        """Mark that a message is done; called by threads of the backend as well."""
        if self.watching:
            self._add((monotonic_ns(), 0, token, 0, 0, DONE))

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting_ns = monotonic_ns()
        elif self.watching and monotonic_ns() - self._collecting_ns > LONG_NS:
            self._add((monotonic_ns(), self._collecting_ns, 0, 0, 0, GARBAGE))

    def _keep(self) -> None:
        """Put what there is by now into the file, in one call."""
        marks = self._marks[: ROOM * FIELDS]
        del self._marks[: len(marks)]
        number = len(marks) // FIELDS
        if self._used + number > ROOM:
            self._used, self._room = 0, self._next_room()
        pack = _PACKS.get(number) or _PACKS.setdefault(number, struct.Struct("<" + RECORD.format[1:] * number))
        pack.pack_into(self._room, self._used * RECORD.size, *marks)
        self._used += number

    def _next_room(self) -> mmap.mmap:
        """Map the next part of the file; raises OSError where the disk is full."""
        begin, length = self._end, ROOM * RECORD.size
        os.posix_fallocate(self._file, begin, length)
        self._end += length
        return mmap.mmap(self._file, length, offset=begin)
