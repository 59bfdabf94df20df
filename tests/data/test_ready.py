"""What lay ready before timed steps is told where they use it up (method.md §8)."""

import queue
import threading
from typing import Any

import pytest
import torch

from worldsize.data.feeding_threads import FeedingThreads
from worldsize.data.ready import Ready

BATCH = torch.ones(2, 3)


class Fed:
    """A training thread, and what another one has put into a queue."""

    def __init__(self) -> None:
        this = threading.current_thread()
        self.feeding = FeedingThreads(lambda: this)
        self.ready = Ready(self.feeding)
        self.made = queue.Queue[Any]()

    def make(self, count: int) -> None:
        for _ in range(count):
            self.made.put(BATCH)

    def turn(self, steps: int, makes: int, *, per_step: int = 1, timed: bool = True) -> int:
        """Steps that take from the queue what lies ready, while the other thread makes so many."""
        self.feeding.go_on()
        thread = threading.Thread(target=self.make, args=(makes,))
        thread.start()
        thread.join()
        for _ in range(steps):
            for _ in range(per_step):
                self.made.get()
            self.feeding.stepped()
        self.feeding.stand_still()
        return self.ready.after(steps, timed=timed)


@pytest.fixture
def fed() -> Any:
    each = Fed()
    with each.feeding:
        yield each


def test_it_is_counted_in_steps(fed: Fed) -> None:
    assert fed.turn(2, 22, timed=False) == 20
    assert fed.turn(4, 4, per_step=2, timed=False) == 8, "16 items, of which a step takes two"


def test_steps_that_use_it_up_say_so(fed: Fed) -> None:
    fed.turn(1, 21, timed=False)
    for _ in range(4):
        assert fed.turn(5, 2) >= 8
        last = fed.ready.warnings()
    assert "Of the batches of 20 steps, 12 had been made before" in last[0].message


@pytest.mark.parametrize("makes", [5, 6])
def test_steps_that_do_not_say_nothing(fed: Fed, makes: int) -> None:
    fed.turn(1, 21, timed=False)
    for _ in range(4):
        fed.turn(5, makes)
    assert not fed.ready.warnings()


def test_what_is_used_up_before_they_begin_is_no_matter(fed: Fed) -> None:
    fed.turn(16, 21, timed=False)
    fed.turn(20, 20)
    assert not fed.ready.warnings()


def test_an_item_that_feeds_several_steps(fed: Fed) -> None:
    """Each third step takes one; what is left of it lies in no queue."""

    def turns(*takes: int) -> list[int]:
        return [fed.turn(1, 2 * each, per_step=each, timed=False) for each in takes]

    assert turns(1, 0, 0, 1) == [1, 0, 0, 2], "two more items lie ready"
    assert fed.feeding.steps_of_item == 3
    fed.feeding.most = 1  # a thread that goes on
    assert turns(0, 0, 1) == [1, 0, 3 + 2], "and so do two batches of this one"


def test_what_is_taken_seldom_is_no_item_of_many_batches(fed: Fed) -> None:
    fed.turn(40, 2, per_step=0, timed=False)
    fed.turn(1, 1, timed=False)
    fed.turn(40, 1, per_step=0, timed=False)
    fed.turn(1, 1, timed=False)
    assert fed.feeding.steps_of_item == 1
