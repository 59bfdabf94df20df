"""The marks of a rank, in memory that is its file: whoever kills the program loses none of them.

A system call a step would take 6 µs of it. Room is asked for in advance, so that a full disk is an error here, and no
SIGBUS in the program.
"""

from __future__ import annotations

import gc
import mmap
import os
import threading
from collections.abc import Iterator
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
    ROOM_BYTES,
    SOME_RANKS,
    STEP,
    STRETCH,
    WORDS,
    word_of,
)

LONG_NS = 1_000_000
"""Garbage that is collected in less time than this is not noted."""
PATIENCE_S = 0.1
"""How long a mark waits for the room that another one is making."""
_STRETCHES = {name: word_of(STRETCH, kind=place) for place, name in enumerate(PHASES)}
_STEP = word_of(STEP)
_KIND = {name: place for place, name in enumerate(KINDS)}
_pack_into = WORDS.pack_into


class Stream:
    """Takes the marks of a `Watch`, on the host's monotonic clock."""

    def __init__(self) -> None:
        self.watching = False
        """Whether marks are taken: not before `open`, as only after a step it is known which rank this is."""
        self._file = -1
        self._end = self._begun_ns = 0
        self._room: tuple[Any, Iterator[int]] = (None, count())
        """The part of the file that is being filled, and where each of its records goes."""
        self._lock = threading.Lock()
        self._tokens = count()
        self._last_gradient: int | None = None
        self._collecting_ns = 0

    def open(self, path: str) -> None:
        """Take marks from now on, and write them there; raises OSError where that cannot be."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self._room = self._next_room()
        self._put(self._begun_ns, 0, word_of(BEGIN))
        gc.callbacks.append(self._collected)
        self.watching = True

    def close(self) -> None:
        """Take no more; also in a process that was forked, whose marks these are not."""
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
            word = _STEP | number
            if unseen or interrupted:
                word |= word_of(0, kind=min(unseen, 0xFFFF), flags=INTERRUPTED if interrupted else 0)
            self._put(monotonic_ns(), samples, word)

    def stretch(self, name: str) -> None:
        """Mark that a stretch of the step ends."""
        if self.watching:
            self._put(monotonic_ns(), 0, _STRETCHES[name])

    def backward_begins(self, before: str) -> None:
        """Mark that a backward begins, and so ends the stretch before it."""
        self._last_gradient = None
        self.stretch(before)

    def backward_over(self) -> None:
        """Mark that a backward ends; since its last gradient the rank has computed nothing."""
        last, self._last_gradient = self._last_gradient, None
        if self.watching:
            if last is not None:
                self._put(last, 0, _STRETCHES["backward"])
            self._put(monotonic_ns(), 0, _STRETCHES["backward" if last is None else "after_backward"])

    def last_gradient(self, mark: int) -> None:
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
                self._put(ready, 0, word_of(READY, token=token))
            word = word_of(ISSUED, token=token, kind=_KIND.get(plain, 0), flags=flags)
            self._put(monotonic_ns(), payload_bytes, word)
        return token

    def done(self, token: int) -> None:
        """Mark that a message is done; called by threads of the backend as well."""
        if self.watching:
            self._put(monotonic_ns(), 0, word_of(DONE, token=token))

    def _collected(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._collecting_ns = monotonic_ns()
        elif self.watching and monotonic_ns() - self._collecting_ns > LONG_NS:
            self._put(monotonic_ns(), self._collecting_ns, word_of(GARBAGE))

    def _put(self, moment_ns: int, value: int, word: int) -> None:
        """Write a record; threads of a backend do so as well, each where no other one does."""
        room = self._room
        at = next(room[1])
        while at >= ROOM_BYTES:
            if not self._lock.acquire(timeout=PATIENCE_S):
                return  # garbage is collected, or a signal handled, within `_next_room`: this mark is lost
            try:
                if self._room is room:
                    self._room = self._next_room()
            finally:
                self._lock.release()
            room = self._room
            at = next(room[1])
        _pack_into(room[0], at, moment_ns, value, word)

    def _next_room(self) -> tuple[mmap.mmap, Iterator[int]]:
        """Map the next part of the file; raises OSError where the disk is full."""
        begin = self._end
        os.posix_fallocate(self._file, begin, ROOM_BYTES)
        self._end += ROOM_BYTES
        return mmap.mmap(self._file, ROOM_BYTES, offset=begin), count(0, WORDS.size)
