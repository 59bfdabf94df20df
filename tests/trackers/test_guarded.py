"""A client may fail or hang: it is switched off with its reason, and whoever asks goes on."""

import threading
from collections.abc import Callable, Mapping, Sequence

import pytest

from worldsize.trackers import GuardedTracker, Row, Series
from worldsize.trackers.tracker import Number

SERIES = Series(study="s", cell="c", session=0, settings={})


class Slow:
    """A client that does what it is told when a step is logged."""

    def __init__(self, does: Callable[[], None] = lambda: None) -> None:
        self.does = does
        self.seen: list[int] = []
        self.closed = 0

    def begin(self, series: Series) -> None:
        """Nothing to prepare."""

    def log(self, series: Series, rows: Sequence[Row]) -> None:
        self.does()
        self.seen += [row.step for row in rows]

    def end(self, series: Series, state: str, summary: Mapping[str, Number]) -> None:
        """Nothing to end."""

    def close(self) -> None:
        self.closed += 1


def log(mirror: GuardedTracker, *steps: int) -> None:
    mirror.ask(lambda client: client.log(SERIES, [Row(step, {}) for step in steps]))


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("mirror")]


def test_a_client_is_asked_in_order_and_leaves_no_thread() -> None:
    client = Slow()
    mirror = GuardedTracker("slow", lambda: client)
    log(mirror, 1, 2)
    log(mirror, 3)
    assert client.seen == [1, 2, 3], "it was done when the question returned"
    mirror.close()
    assert (mirror.trouble, client.closed, threads()) == (None, 1, [])


@pytest.mark.parametrize("error", [OSError("no space left\nmore of it"), SystemExit(3), KeyError()])
def test_the_first_error_switches_it_off_and_it_is_closed_all_the_same(error: BaseException) -> None:
    def fail() -> None:
        raise error

    client = Slow(fail)
    mirror = GuardedTracker("slow", lambda: client)
    log(mirror, 1)
    client.does = lambda: None
    log(mirror, 2)
    assert client.seen == []
    mirror.close()
    first = f"{type(error).__name__}: {str(error).splitlines()[0]}" if str(error) else type(error).__name__
    assert mirror.trouble == first
    assert client.closed == 1
    assert threads() == []


def test_one_that_cannot_be_opened_is_off_from_the_start() -> None:
    def fail() -> Slow:
        raise RuntimeError("no server")

    mirror = GuardedTracker("slow", fail)
    log(mirror, 1)
    mirror.close()
    assert mirror.trouble == "RuntimeError: no server"


def test_one_that_hangs_is_left_to_itself() -> None:
    freed = threading.Event()

    def wait() -> None:
        freed.wait(60)

    client = Slow(wait)
    mirror = GuardedTracker("slow", lambda: client, patience_s=0.2)
    log(mirror, 1)
    log(mirror, 2)
    mirror.close()
    assert mirror.trouble == "it did not answer within 0.2 s"
    assert client.closed == 0
    freed.set()


def test_a_timeout_of_the_client_s_own_is_an_error_like_any_other() -> None:
    def fail() -> None:
        raise TimeoutError("the server is away")

    client = Slow(fail)
    mirror = GuardedTracker("slow", lambda: client)
    log(mirror, 1)
    mirror.close()
    assert mirror.trouble == "TimeoutError: the server is away"
    assert client.closed == 1
