"""Threads that make batches: which they are, and that they are held while their cell stands still (method.md §8)."""

import multiprocessing
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from worldsize.data import feeding_threads
from worldsize.data.feeding_threads import FeedingThreads

BATCH = torch.ones(2, 3)
HELD_S = 0.1
"""What has not been handed over after so long is held."""
Put = Callable[["queue.Queue[Any]", Any], None]


def watching() -> FeedingThreads:
    this = threading.current_thread()
    return FeedingThreads(lambda: this)


@contextmanager
def running(work: Callable[[], object]) -> Iterator[None]:
    """A thread that does this; it must have ended when the context is left."""
    thread = threading.Thread(target=work, name="mine", daemon=True)
    thread.start()
    yield
    thread.join(10)
    assert not thread.is_alive()


def twice(into: "queue.Queue[Any]", item: Any, again: threading.Event, put: Put = queue.Queue.put_nowait) -> None:
    """Put something, and once more when that is wanted."""
    put(into, item)
    again.wait()
    put(into, item)


def is_held(item: Any, put: Put = queue.Queue.put_nowait) -> bool:
    """Whether a thread that hands over such items is held while the cell stands still; then it goes on."""
    made, again = queue.Queue[Any](), threading.Event()
    with watching() as feeding, running(lambda: twice(made, item, again, put)):
        made.get()
        feeding.stand_still()
        again.set()
        time.sleep(HELD_S)
        held = made.empty()
        feeding.go_on()
    assert made.qsize() == 1
    return held


@pytest.mark.parametrize("batch", [torch.ones(2, 3), (np.ones(4), 1), {"ids": [torch.ones(1)]}])
def test_a_thread_that_hands_over_tensors_or_arrays_is_held(batch: Any) -> None:
    assert is_held(batch)


@pytest.mark.parametrize("item", ["an epoch is over", 0.5, torch.tensor(0.5), {"loss": 0.5}])
def test_one_that_hands_over_no_batch_is_not(item: Any) -> None:
    assert not is_held(item)


def test_a_thread_of_torch_hands_on_what_processes_have_made() -> None:
    """As where the pages of batches are pinned, which no CPU does."""
    space: dict[str, Any] = {"__name__": "torch.utils.data._utils.pin_memory"}
    exec("def put(queue, item): queue.put(item)", space)
    assert not is_held(BATCH, space["put"])


def test_what_others_take_is_no_matter() -> None:
    made, again = queue.Queue[Any](), threading.Event()
    with watching() as feeding, running(lambda: twice(made, BATCH, again)):
        with running(made.get):
            pass
        feeding.stand_still()
        again.set()
        time.sleep(HELD_S)
        assert not made.empty()


def test_a_thread_that_makes_what_a_held_one_needs_is_held_too() -> None:
    raw, made, again = queue.Queue[Any](), queue.Queue[Any](), threading.Event()

    def transform() -> None:
        for _ in range(2):
            made.put(raw.get() + 0)

    with watching() as feeding, running(lambda: twice(raw, BATCH, again)), running(transform):
        made.get()
        feeding.stand_still()
        again.set()
        time.sleep(HELD_S)
        assert (raw.empty(), made.empty(), feeding.most) == (True, True, 2)
        feeding.go_on()
    assert made.qsize() == 1


def test_the_threads_of_a_pool_are_held() -> None:
    again = threading.Event()
    with watching() as feeding, ThreadPoolExecutor(2) as pool:
        assert pool.submit(lambda: BATCH).result() is BATCH
        later = pool.submit(lambda: (again.wait(), BATCH))
        feeding.stand_still()
        again.set()
        time.sleep(HELD_S)
        assert not later.done()
        assert feeding.most == 1
        feeding.go_on()
        assert later.result(10)[1] is BATCH


def test_a_thread_that_feeds_both_goes_on_for_either() -> None:
    """Steps that train and steps that only measure may take from one queue."""
    made, again = queue.Queue[Any](), threading.Event()
    with watching() as training, watching() as spare, running(lambda: twice(made, BATCH, again)):
        spare.stand_still()
        made.get()
        training.stand_still()
        spare.go_on()
        again.set()
        assert made.get() is BATCH
        assert training.shared == spare.shared == set(), "what is not taken stays for the other"


def feeder(pool: ThreadPoolExecutor, into: "queue.Queue[Any]", count: int) -> None:
    """Hand over what a pool makes, one item after the other."""
    for _ in range(count):
        into.put(pool.submit(lambda: BATCH + 0).result())


@contextmanager
def two_streams(count: int) -> Iterator[tuple[FeedingThreads, FeedingThreads, "queue.Queue[Any]"]]:
    """One that trains has had its turn, another begins its first; a thread of each is fed by a pool of both."""
    first, second = queue.Queue[Any](1), queue.Queue[Any](1)
    with ThreadPoolExecutor(1) as pool, watching() as training, watching() as spare:
        spare.stand_still()
        with running(lambda: feeder(pool, first, count)):
            first.get(), first.get()
            training.stand_still()
            spare.go_on()
            with running(lambda: feeder(pool, second, 2)):
                yield training, spare, second
            training.go_on()
            for _ in range(count - 2):
                first.get(timeout=10)


@pytest.mark.parametrize("timeout", [None, 10])
def test_who_needs_what_is_held_lets_it_go(timeout: float | None) -> None:
    with two_streams(6) as (training, spare, second):
        second.get(timeout=timeout), second.get(timeout=timeout)
        spare.stand_still()
        training.stand_still()
        training.go_on()
    names = training.shared | spare.shared
    assert names, "the pool makes batches for both in turns of either"
    assert all(name.startswith("ThreadPoolExecutor") for name in names)


def test_a_pool_that_is_asked_is_let_go_however_it_is_waited_for() -> None:
    with watching() as training, watching() as spare, ThreadPoolExecutor(2) as pool:
        spare.stand_still()
        assert pool.submit(lambda: BATCH).result() is BATCH
        training.stand_still()
        spare.go_on()
        assert not wait([pool.submit(lambda: BATCH)], timeout=10).not_done


def test_who_waits_for_one_that_is_held_lets_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread that gives to two queues in turn."""
    monkeypatch.setattr(feeding_threads, "PATIENCE_S", HELD_S)
    first, second, again = queue.Queue[Any](), queue.Queue[Any](), threading.Event()

    def make() -> None:
        twice(first, BATCH, again)
        second.put(BATCH)

    with watching() as training, watching() as spare, running(make):
        spare.stand_still()
        first.get()
        training.stand_still()
        spare.go_on()
        again.set()
        with spare.asking():
            assert second.get(timeout=10) is BATCH
        assert training.shared == {"mine"}
        assert not training.holds, "nor is it held later"


def test_what_lies_ready_is_what_others_have_put_and_what_a_pool_has_ended() -> None:
    free, made = queue.Queue[Any](), queue.Queue[Any]()
    for _ in range(8):
        free.put(BATCH)  # buffers to be filled

    def fill() -> None:
        for _ in range(6):
            made.put(free.get())

    with watching() as feeding, ThreadPoolExecutor(1) as pool:
        with running(fill):
            pass
        ahead = [pool.submit(lambda: BATCH) for _ in range(4)]
        wait(ahead)
        feeding.go_on()
        made.get(), made.get(), ahead[0].result()
        feeding.stand_still()
        assert sorted(map(tuple, feeding.levels)) == [(3, 3, 1, True, True), (4, 4, 2, True, True)], (
            "what feeds was not known before"
        )
        feeding.go_on()
        made.get()
        feeding.stand_still()
        assert sorted(map(tuple, feeding.levels)) == [(3, 3, 0, True, True), (4, 3, 1, True, True)]


def burst(*threads: int) -> int:
    """What threads hand over at once that make so many items in each piece of work; a first one feeds them all."""
    raw, made, over = queue.Queue[Any](), queue.Queue[Any](), threading.Event()

    def work(count: int) -> None:
        for _ in range(6):
            raw.get()
            time.sleep(0.02)
            for _ in range(count):
                made.put(BATCH)
        over.wait()

    def read() -> None:
        for _ in range(6 * len(threads)):
            time.sleep(0.002)
            raw.put(BATCH)
        over.wait()

    with watching() as feeding, ExitStack() as all_of_them:
        for count in threads:
            all_of_them.enter_context(running(partial(work, count)))
        all_of_them.enter_context(running(read))
        for _ in range(6 * sum(threads)):
            made.get(timeout=10)
        feeding.stand_still()
        feeding.go_on()
        over.set()
        return feeding.most


@pytest.mark.parametrize(("threads", "most"), [((1,), 2), ((2,), 2), ((3, 3), 6), ((1, 1, 1), 6)])
def test_bursts_are_whole_ones_of_those_that_hand_batches_over(threads: tuple[int, ...], most: int) -> None:
    """So many that the reader's item, which may be in hand besides, is in them as well."""
    assert burst(*threads) == most


def test_who_leaves_lets_them_go() -> None:
    made, again = queue.Queue[Any](), threading.Event()
    with running(lambda: twice(made, BATCH, again)):
        with watching() as feeding:
            made.get()
            feeding.stand_still()
        again.set()
    assert made.qsize() == 1


def test_a_wait_is_told_once_it_is_known_what_for() -> None:
    waits: list[int] = []

    @contextmanager
    def waiting() -> Iterator[None]:
        waits.append(made.qsize())
        yield

    made, notes = queue.Queue[Any](), queue.Queue[Any]()
    this = threading.current_thread()
    with FeedingThreads(lambda: this, waiting):
        for into, item in ((made, BATCH), (made, BATCH), (notes, 1), (notes, 1)):
            into.put(item)
        for source in (made, made, notes, notes):
            source.get()
    assert waits == [1], "the second batch"


def functions() -> list[Any]:
    return [queue.Queue.put, queue.Queue.get, ThreadPoolExecutor.submit, Future.result]


BEFORE = functions()


def test_all_is_left_as_it_was() -> None:
    with watching():
        with watching():
            assert not set(functions()) & set(BEFORE)
        assert not set(functions()) & set(BEFORE)
    assert functions() == BEFORE


def test_a_process_that_is_forked_has_threads_of_its_own() -> None:
    fork = multiprocessing.get_context("fork")
    with watching(), fork.Pool(1) as pool:
        assert pool.apply(as_they_were) is True


def as_they_were() -> bool:
    return functions() == BEFORE
