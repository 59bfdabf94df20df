"""Which threads make batches: those whose tensors the training thread takes from a queue (method.md §8)."""

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from worldsize.data.feeding_threads import FeedingThreads


def in_a_thread(work: Callable[[], object], name: str = "mine") -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


def seen(item: Any, put: Callable[[Any, Any], None] = queue.Queue.put_nowait) -> set[str]:
    """The threads that are named where one has put this, and the training thread takes it."""
    this, made = threading.current_thread(), queue.Queue[Any]()
    with FeedingThreads(lambda: this) as feeding:
        in_a_thread(lambda: put(made, item))
        assert made.get() is item
    return feeding.names


@pytest.mark.parametrize("batch", [torch.ones(2, 3), (np.ones(4), 1), {"ids": [torch.ones(1)]}])
def test_a_thread_that_hands_over_tensors_or_arrays(batch: Any) -> None:
    assert seen(batch) == {"mine"}


@pytest.mark.parametrize("item", [None, "an epoch is over", 0.5, torch.tensor(0.5), {"loss": 0.5}])
def test_what_is_no_batch_names_no_thread(item: Any) -> None:
    assert seen(item) == set()


def test_a_thread_of_torch_hands_on_what_processes_have_made() -> None:
    """As where the pages of batches are pinned, which no CPU does."""
    space: dict[str, Any] = {"__name__": "torch.utils.data._utils.pin_memory"}
    exec("def put(queue, item): queue.put(item)", space)
    assert seen(torch.ones(2), space["put"]) == set()


def test_what_the_training_thread_puts_itself_or_others_take_is_no_matter() -> None:
    this, made = threading.current_thread(), queue.Queue[Any]()
    with FeedingThreads(lambda: this) as feeding:
        made.put(torch.ones(2))
        made.get()
        in_a_thread(lambda: made.put(torch.ones(2)))
        in_a_thread(made.get)
    assert feeding.names == set()


def test_queues_are_left_as_they_were() -> None:
    this, before = threading.current_thread(), (queue.Queue.put, queue.Queue.get)
    with FeedingThreads(lambda: this):
        with FeedingThreads(lambda: this):
            assert queue.Queue.put is not before[0]
        assert queue.Queue.put is not before[0]
    assert (queue.Queue.put, queue.Queue.get) == before
