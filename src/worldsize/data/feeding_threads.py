"""Threads of the user's own that make batches ahead, held while their cell waits for its turn (method.md §8).

A thread cannot be stopped where it is, as a process can. It is held where it hands over its next batch: in `put` of a
`queue.Queue`, or where it ends a work item of a `ThreadPoolExecutor`. Which threads these are is seen by what they hand
over: the training thread takes batches. Threads that log, watch or save hand over none.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary

from worldsize.data.channel import Channel, Level
from worldsize.data.hand_over import unwatch, watch
from worldsize.data.looks import is_batch

PATIENCE_S = 10.0
"""How long the training thread waits for a batch beside threads that are held: it may wait for what one of them does.
They are let go for good then."""
MOST_BATCHES = 32
"""Of an item: what is taken more seldom feeds something else than each step."""
LOOKS = 32
"""So many first items of a channel are looked at, and then each so-manyth: to look at one of many parts takes 50 µs."""
_MOVED = threading.Condition()
"""Notified where threads that were held may go on; its lock guards what is seen."""


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
        """The most items that came in a burst: what the last threads on the way hand over at once. It is a multiple of
        that where there are more threads in all, for each may have an item in hand."""
        self.shared: set[str] = set()
        """Names of those that make batches for others as well while these stand still."""
        self.levels: list[Level] = []
        """Of each channel on the way to the training thread, since they last went on."""
        self.feeding: set[Channel] = set()
        """By which the training thread gets batches."""
        self.steps_of_item = 1
        """Steps that what the training thread takes is enough for, at most: an item may hold several batches."""
        self.steps_since = 0
        """Steps since it last took something."""
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

    def stepped(self) -> None:
        """The training thread has used a batch up."""
        self.steps_since += 1

    def took(self) -> None:
        """The training thread has taken what it makes batches of."""
        if self.steps_since <= MOST_BATCHES:
            self.steps_of_item = max(self.steps_of_item, self.steps_since)
        self.steps_since = 0

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
            taken = [each for each in self.feeding if each.taken > self._before.get(each, (0, 0))[1]]
            last, every = (
                sum(each.at_once() for each in taken),
                sum(maker.is_alive() for maker in _makers(_SEEN.upstream(taken))),
            )
            self.most = max(self.most, last * -(-every // last) if last else 0)
            # What nobody but the training thread puts anywhere is no batch: numbers of samples, buffers to be filled.
            self.levels = [self._level(each) for each in on_the_way if each.by_threads or each in self.feeding]
            _SEEN.settle()

    def _level(self, channel: Channel) -> Level:
        lying = channel.lying()
        before, taken = self._before.get(channel, (lying, 0))
        return Level(before, lying, channel.taken - taken, channel.by_threads, channel in self.feeding)

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
            return
        if channel not in feeding.feeding:
            if (channel.taken > LOOKS and channel.taken % LOOKS) or not is_batch(item):
                return
            with _MOVED:
                feeding.feeding.add(channel)
        feeding.took()


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
        held: set[Channel] = set()
        for each in self.looking:
            if not each.awake and each.holds:
                on_the_way = self.upstream(each.feeding)
                held |= on_the_way - awake
                pools = {one for one in on_the_way & awake if isinstance(one.by(), ThreadPoolExecutor)}
                each.shared |= {maker.name for maker in _makers(pools)}  # what else they were asked for is made as well
        self.held = held
        _MOVED.notify_all()

    def giving(self, by: Any) -> None:
        """This thread is about to hand something over: it waits while that is not wanted."""
        thread, channel = threading.current_thread(), self._channel(by)
        if thread not in channel.makers:
            if any(each.training() is thread for each in self.looking):
                return
            with _MOVED:
                channel.makers.add(thread)
                channel.by_threads = True
        channel.gaps(thread).giving()
        if channel in self.held:  # without the lock as a rule: a loop may hand over each sample by itself
            with _MOVED:
                while not _MOVED.wait_for(lambda: channel not in self.held, PATIENCE_S):
                    self._let_go(channel)

    def gave(self, by: Any) -> None:
        """It is there."""
        channel = self._channel(by)
        channel.given += 1
        if (thread := threading.current_thread()) in channel.makers:
            channel.gaps(thread).gave()

    def asking(self, by: Any) -> None:
        """This thread needs what it will get by this: it is held for nobody."""
        if self.held and (channel := self._channel(by)) in self.held:
            thread = threading.current_thread()
            if any(each.training() is thread for each in self.looking) or thread not in _makers(self.held):
                with _MOVED:
                    self.held = self.held - self.upstream([channel])  # others read it without the lock
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
