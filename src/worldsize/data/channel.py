"""A queue or a pool by which threads hand batches over: who does, how many lie ready, and how many come at once."""

import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

NO_WORK = 0.05
"""Share of the longest gap between two items of a thread: in less it has made nothing."""


class Gaps:
    """How long a thread works between one item that it hands over and the next; it may make several at once."""

    def __init__(self) -> None:
        self._gaps_s: deque[float] = deque(maxlen=64)
        self._gave_s = 0.0

    def giving(self) -> None:
        """It has made the next one."""
        if self._gave_s:
            self._gaps_s.append(time.perf_counter() - self._gave_s)

    def gave(self) -> None:
        """It has handed it over."""
        self._gave_s = time.perf_counter()

    def at_once(self) -> int:
        """Items between two long gaps: those without hardly any work between them come from one piece of work."""
        gaps_s = list(self._gaps_s)
        none = NO_WORK * max(gaps_s, default=0.0)
        long = sum(each > none for each in gaps_s)
        return round((len(gaps_s) + 1) / (long + 1))


class Channel:
    """What threads hand something over by: a queue, or a pool."""

    def __init__(self, by: Any) -> None:
        self.by = ref(by)
        self.makers: WeakSet[threading.Thread] = WeakSet()
        """Those that have put something into it, but for the training thread."""
        self.by_threads = False
        """Whether there were any; those that have ended are no makers any more."""
        self.takers: WeakSet[threading.Thread] = WeakSet()
        """Those that have taken something from it, but for the training thread."""
        self.given = self.taken = 0
        """Items, so far."""
        self._gaps: WeakKeyDictionary[threading.Thread, Gaps] = WeakKeyDictionary()

    def gaps(self, thread: threading.Thread) -> "Gaps":
        """Those of one of its makers."""
        return self._gaps.setdefault(thread, Gaps())

    def at_once(self) -> int:
        """Items that its makers hand over in a burst, all of them together."""
        return sum(self.gaps(maker).at_once() for maker in self.makers if maker.is_alive())

    def lying(self) -> int:
        """Items that lie ready in it."""
        by = self.by()
        if isinstance(by, ThreadPoolExecutor):
            return max(0, self.given - self.taken)
        with suppress(NotImplementedError):  # macOS does not tell of queues of processes
            return 0 if by is None else int(by.qsize())
        return 0


class Level(NamedTuple):
    """What lay ready in a channel before a turn and after it, and what was taken from it in between (items)."""

    before: int
    after: int
    taken: int
    by_threads: bool
    """Not by processes, whose queues also empty where an epoch ends."""
    last: bool
    """The training thread takes from it."""
