"""A sign of life without a terminal: continuous integration ends a job that is silent for long.

One thread that sleeps, and wakes once in a while to print a line; a core that is measured loses some microseconds in
half a minute. On a terminal there is none: what is drawn there stands still and says what goes on.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from worldsize.cli.console import duration_text, messages

BEAT_S = 30.0
"""Longest silence."""


class Heartbeat:
    """Says `what` goes on, and for how long, whenever nothing was told for `every_s`."""

    def __init__(self, what: str, tell: Callable[[str], None], every_s: float = BEAT_S) -> None:
        self.what = what
        """What goes on; whoever prints something else sets it, or calls `progress`."""
        self._tell, self._every_s = tell, every_s
        self._begun_s = self._spoke_s = time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def progress(self, what: str = "") -> None:
        """Something was printed just now; from now on `what` goes on, if it is given."""
        self.what = what or self.what
        self._spoke_s = time.monotonic()

    def _beat(self) -> None:
        while not self._over.wait(max(0.0, self._spoke_s + self._every_s - time.monotonic())):
            now_s = time.monotonic()
            if now_s - self._spoke_s >= self._every_s:
                self._spoke_s = now_s
                with suppress(OSError, ValueError):  # stderr is closed: there is no reader
                    self._tell(f"  {self.what}, {duration_text(now_s - self._begun_s)} since the start")


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say on stderr what takes some seconds: as long as it lasts on a terminal, now and then elsewhere."""
    console = messages()
    with console.status(what) if console.is_interactive else Heartbeat(what, console.print):
        yield
