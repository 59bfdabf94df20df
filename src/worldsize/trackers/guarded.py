"""Keeps a tracker from doing harm: it works in a thread of its own, and its first error or delay switches it off."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future

from worldsize.trackers.tracker import Tracker

OPEN_S = 120.0
"""A database that is made anew, or a login over a slow network, takes seconds; nothing is timed meanwhile."""
ANSWER_S = 20.0
"""Longest pause between two turns that a tracker may cause: after it the study goes on without it."""
CLOSE_S = 60.0
"""How long a tracker may send what it still has when the study is over."""

Work = Callable[[Tracker], None]


class GuardedTracker:
    """One tracker that is asked to do things, one after the other; `trouble` says why it is asked no more."""

    def __init__(self, name: str, open_tracker: Callable[[], Tracker], *, patience_s: float | None = None) -> None:
        """Open the tracker; `patience_s` replaces the three times that a tracker may take."""
        self.name = name
        self.trouble: str | None = None
        self._patience_s = patience_s
        self._stuck = False
        self._tracker: Tracker | None = None
        self._work: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()
        # A daemon: a tracker that hangs must not keep the command from ending.
        self._thread = threading.Thread(target=self._serve, name=f"tracker {name}", daemon=True)
        self._thread.start()
        self._wait(lambda: setattr(self, "_tracker", open_tracker()), OPEN_S)

    def ask(self, work: Work) -> None:
        """Let the tracker do something and wait for it; nothing happens once there was trouble."""
        tracker = self._tracker
        if self.trouble is None and tracker is not None:
            self._wait(lambda: work(tracker), ANSWER_S)

    def give_up(self, error: BaseException) -> None:
        """Ask the tracker no more; the first reason is kept."""
        self.trouble = self.trouble or _in_one_line(error)

    def close(self) -> None:
        """End the tracker and its thread; a tracker that hangs is left to itself."""
        tracker = self._tracker
        if tracker is not None and not self._stuck:
            self._wait(tracker.close, CLOSE_S)
        self._tracker = None
        if not self._stuck:
            self._work.put(None)
            self._thread.join()

    def _wait(self, call: Callable[[], None], limit_s: float) -> None:
        done: Future[None] = Future()
        limit_s = self._patience_s or limit_s
        self._work.put((call, done))
        try:
            error = done.exception(timeout=limit_s)
        except TimeoutError:
            self._stuck = True
            self.trouble = self.trouble or f"it did not answer within {limit_s:g} s"
            return
        if error is not None:
            self.give_up(error)

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            call, done = item
            try:
                call()
            except BaseException as error:  # some trackers exit the interpreter where they should raise
                done.set_exception(error)
            else:
                done.set_result(None)


def _in_one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
