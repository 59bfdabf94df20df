"""Threads that make batches: which they are, and that they are held while their cell stands still (method.md §8)."""

import multiprocessing
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
        held = given_soon(made) is None
        feeding.go_on()
    assert held is (made.qsize() == 1)
    return held


def given_soon(made: "queue.Queue[Any]") -> Any:
    """What another thread than this one, which trains, takes within a while; None where there is nothing."""
    taken: list[Any] = []

    def take() -> None:
        with suppress(queue.Empty):
            taken.append(made.get(timeout=HELD_S))

    with running(take):
        pass
    return taken[0] if taken else None


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
        assert given_soon(made) is not None
        feeding.stand_still()
        again.set()
        assert given_soon(made) is not None


def test_a_thread_that_makes_what_a_held_one_needs_is_held_too() -> None:
    raw, made, again = queue.Queue[Any](), queue.Queue[Any](), threading.Event()

    def transform() -> None:
        for _ in range(2):
            made.put(raw.get() + 0)

    with watching() as feeding, running(lambda: twice(raw, BATCH, again)), running(transform):
        made.get()
        feeding.stand_still()
        again.set()
        assert given_soon(raw) is None
        assert feeding.most == 2
        feeding.go_on()
    assert made.qsize() == 1


def test_the_threads_of_a_pool_are_held() -> None:
    with watching() as feeding, ThreadPoolExecutor(2) as pool:
        assert pool.submit(lambda: BATCH).result() is BATCH
        feeding.stand_still()
        later = pool.submit(lambda: BATCH)
        with pytest.raises(TimeoutError), leaving_out(feeding):
            later.result(HELD_S)
        feeding.go_on()
        assert later.result() is BATCH
        feeding.stand_still()
        assert feeding.most == 1
        feeding.go_on()


@contextmanager
def leaving_out(feeding: FeedingThreads) -> Iterator[None]:
    """Another thread trains meanwhile, as far as this knows."""
    training, feeding.training = feeding.training, lambda: threading.Thread()
    yield
    feeding.training = training


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
        assert training.shared == spare.shared == set()
        assert not training.held, "it is the other's now"
        spare.stand_still()
        assert spare.held
        spare.go_on()


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
        assert second.get() is BATCH
        assert training.shared == {"mine"}
        training.stand_still()
        assert not training.held, "nor is it held later"


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
    return [queue.Queue.put, queue.Queue.get, ThreadPoolExecutor.submit, Future.result, Future.set_result]


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
