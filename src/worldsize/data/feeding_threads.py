"""Threads of the user's own that make batches ahead, held while their cell waits for its turn (method.md §8).

A thread cannot be stopped where it is, as a process can. It is held where it hands over its next batch: in `put` of a
`queue.Queue`, or where it ends a work item of a `ThreadPoolExecutor`. Which threads these are is seen by what they hand
over: the training thread takes batches. Threads that log, watch or save hand over none.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakSet, ref

from worldsize.data.hand_over import unwatch, watch
from worldsize.data.looks import is_batch

PATIENCE_S = 10.0
"""How long the training thread waits for a batch beside threads that are held: it may wait for what one of them does.
They are let go for good then."""
LOOKS = 32
"""So many first items of a channel are looked at, and then each so-manyth: to look at one of many parts takes 50 µs."""
_MOVED = threading.Condition()
"""Notified where threads that were held may go on; its lock guards what is seen."""


class Channel:
    """What threads hand something over by: a queue, or a pool."""

    def __init__(self, by: Any) -> None:
        self.by = ref(by)
        self.makers: WeakSet[threading.Thread] = WeakSet()
        """Those that have put something into it, but for the training thread."""
        self.takers: WeakSet[threading.Thread] = WeakSet()
        """Those that have taken something from it, but for the training thread."""
        self.given = self.taken = 0
        """Items, so far."""

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


class FeedingThreads:
    """Within its context it sees which threads hand batches to the training thread, and holds them when told to."""

    def __init__(
        self,
        training: Callable[[], threading.Thread],
        waiting: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`training` tells which thread trains; within `waiting()` this one waits for a batch."""
        self.training, self.waiting = training, waiting
        self.awake, self.holds = True, True
        self.most = 0
        """So many threads that feed there were at most when they were to stand still."""
        self.shared: set[str] = set()
        """Names of those that make batches for others as well while these stand still."""
        self.levels: list[Level] = []
        """Of each channel on the way to the training thread, since they last went on."""
        self.feeding: set[Channel] = set()
        """By which the training thread gets batches."""
        self.asked_s: float | None = None
        """Since when it waits for one (time.monotonic), where that is known."""
        self._before: dict[Channel, tuple[int, int]] = {}

    def __enter__(self) -> "FeedingThreads":
        with _MOVED:
            _SEEN.looking.append(self)
        watch(_SEEN)
        return self

    def __exit__(self, *_: object) -> None:
        with _MOVED:
            _SEEN.looking.remove(self)
            _SEEN.settle()
        if not _SEEN.looking:
            unwatch()

    @contextmanager
    def asking(self) -> Iterator[None]:
        """The training thread waits for a batch within, in whatever way."""
        self.asked_s = time.monotonic()
        try:
            yield
        finally:
            self.asked_s = None

    def go_on(self) -> None:
        """Let them go on."""
        with _MOVED:
            self.awake = True
            self._before = {each: (each.lying(), each.taken) for each in _SEEN.upstream(self.feeding)}
            _SEEN.settle()

    def stand_still(self) -> None:
        """Hold each of them where it hands over its next batch."""
        with _MOVED:
            self.awake = False
            self.feeding = {each for each in self.feeding if each.by() is not None}
            on_the_way = _SEEN.upstream(self.feeding)
            self.most = max(self.most, sum(maker.is_alive() for maker in _makers(on_the_way)))
            # What nobody but the training thread puts anywhere is no batch: numbers of samples, buffers to be filled.
            self.levels = [self._level(each) for each in on_the_way if each.makers or each in self.feeding]
            _SEEN.settle()

    def _level(self, channel: Channel) -> Level:
        lying = channel.lying()
        before, taken = self._before.get(channel, (lying, 0))
        return Level(before, lying, channel.taken - taken)

    def let_all_go(self) -> None:
        """Hold none of them any more: the training thread waits for one of them."""
        self.holds = False
        self.shared |= {maker.name for maker in _makers(_SEEN.upstream(self.feeding))}


class _Taking:
    """What a thread takes by a channel; `feeding` if it is the one that trains."""

    def __init__(self, feeding: FeedingThreads | None, channel: Channel) -> None:
        self.feeding, self.channel = feeding, channel

    def waiting(self) -> AbstractContextManager[None]:
        feeding = self.feeding
        return nullcontext() if feeding is None or self.channel not in feeding.feeding else feeding.waiting()

    def took(self, item: Any) -> None:
        channel, feeding = self.channel, self.feeding
        channel.taken += 1
        if feeding is None:
            if (thread := threading.current_thread()) not in channel.takers:
                with _MOVED:
                    channel.takers.add(thread)
        elif (
            channel not in feeding.feeding and not (channel.taken > LOOKS and channel.taken % LOOKS) and is_batch(item)
        ):
            with _MOVED:
                feeding.feeding.add(channel)


class _Seen:
    """What is handed over in this process, who looks at it, and what is held."""

    def __init__(self) -> None:
        self.looking: list[FeedingThreads] = []
        self.held: set[Channel] = set()
        self._channels: WeakKeyDictionary[Any, Channel] = WeakKeyDictionary()
        """By queue or pool."""

    def settle(self) -> None:
        """Decide what is held: what feeds those that stand still, and nobody else."""
        awake: set[Channel] = set().union(*(self.upstream(each.feeding) for each in self.looking if each.awake))
        self.held = set()
        for each in self.looking:
            if not each.awake and each.holds:
                on_the_way = self.upstream(each.feeding)
                self.held |= on_the_way - awake
                pools = {one for one in on_the_way & awake if isinstance(one.by(), ThreadPoolExecutor)}
                each.shared |= {maker.name for maker in _makers(pools)}  # what else they were asked for is made as well
        _MOVED.notify_all()

    def giving(self, by: Any) -> None:
        """This thread is about to hand something over: it waits while that is not wanted."""
        thread, channel = threading.current_thread(), self._channel(by)
        if thread not in channel.makers:
            if any(each.training() is thread for each in self.looking):
                return
            with _MOVED:
                channel.makers.add(thread)
        if channel in self.held:  # without the lock as a rule: a loop may hand over each sample by itself
            with _MOVED:
                while not _MOVED.wait_for(lambda: channel not in self.held, PATIENCE_S):
                    self._let_go(channel)

    def gave(self, by: Any) -> None:
        """It is there."""
        self._channel(by).given += 1

    def asking(self, by: Any) -> None:
        """This thread needs what it will get by this: it is held for nobody."""
        if self.held and (channel := self._channel(by)) in self.held:
            thread = threading.current_thread()
            if any(each.training() is thread for each in self.looking) or thread not in _makers(self.held):
                with _MOVED:
                    self.held -= self.upstream([channel])
                    _MOVED.notify_all()

    def taking(self, by: Any) -> _Taking:
        """This thread is about to take something."""
        self.asking(by)
        thread, mine = threading.current_thread(), None
        for each in self.looking:
            if each.training() is thread and (mine is None or (each.awake and not mine.awake)):
                mine = each
        return _Taking(mine, self._channel(by))

    def upstream(self, channels: Iterable[Channel]) -> set[Channel]:
        """These, and all by which their makers get what they make batches of."""
        found: set[Channel] = set()
        new = set(channels)
        while new:
            found |= new
            makers = _makers(new)
            new = {each for each in self._channels.values() if not makers.isdisjoint(each.takers)} - found
        return found

    def _let_go(self, channel: Channel) -> None:
        """Let all go whose training thread has waited for long, by whatever it waits: it may be for one of them."""
        now_s = time.monotonic()
        waiting = [each.training() for each in self.looking if now_s - (each.asked_s or now_s) >= PATIENCE_S]
        for each in self.looking:
            if not each.awake and each.training() in waiting and channel in self.upstream(each.feeding):
                each.let_all_go()
                self.settle()

    def _channel(self, by: Any) -> Channel:
        found = self._channels.get(by)
        if found is None:
            with _MOVED:
                found = self._channels.setdefault(by, Channel(by))
        return found


_SEEN = _Seen()


def _makers(channels: Iterable[Channel]) -> set[threading.Thread]:
    return {maker for each in channels for maker in each.makers}
