"""Loader processes that are forked while another thread holds what they need."""

import gc
import os
import signal
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from worldsize.data.forked import PATIENCE_S
from worldsize.data.per_sample import collated
from worldsize.errors import DataError

LOADERS = 2


class Numbers(Dataset[tuple[Tensor, int]]):
    """Sample i is i."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.tensor([float(index)]), index


class Hanging:
    """Lets the next forks of this process hang in the child, before Python code of the child's own runs there."""

    def __init__(self) -> None:
        self.left = self.forks = 0
        self.stops = False
        os.register_at_fork(before=self._count, after_in_child=self._hang)

    def _count(self) -> None:
        self.forks += 1
        self.left -= 1

    def _hang(self) -> None:
        if self.stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        if self.left >= 0:
            lock = threading.Lock()
            lock.acquire()
            lock.acquire()  # the lock of a thread that is not there


HANGING = Hanging()  # what is registered stays


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    HANGING.forks = 0
    yield HANGING
    HANGING.left, HANGING.stops = 0, False


def load() -> list[int]:
    batches = collated(Numbers(), [[0, 1], [2, 3], [4, 5], [6, 7]], False, LOADERS)
    return [label for _, labels in batches for label in labels.tolist()]


@pytest.mark.parametrize("hung", [0, 1, 3])
def test_a_process_that_hangs_as_it_is_forked_is_forked_again(hanging: Hanging, hung: int) -> None:
    hanging.left = hung
    gc.collect()
    before = psutil.Process().num_fds()
    assert load() == list(range(8))
    assert hanging.forks == LOADERS + hung
    until_s = time.monotonic() + 10  # the thread behind a queue of DataLoader's closes it, some time after
    while (left := psutil.Process().num_fds()) != before and time.monotonic() < until_s:
        gc.collect()
        time.sleep(0.05)
    assert left == before, "no descriptor is left open"


def test_one_that_never_begins_is_said_and_not_waited_for(hanging: Hanging) -> None:
    hanging.left = 1000
    with pytest.raises(DataError, match="a process of the loader hung as it began, 5 times in a row"):
        load()
    assert hanging.forks == 5


def test_one_that_is_stopped_as_it_begins_is_waited_for(hanging: Hanging) -> None:
    """It is not asleep: it goes on, as one does that waits for a core."""
    hanging.stops = True
    stopped: list[int] = []

    def let_go() -> None:
        deadline = time.monotonic() + 60
        while len(stopped) < LOADERS and time.monotonic() < deadline:
            for child in psutil.Process().children():
                if child.pid not in stopped and child.status() == psutil.STATUS_STOPPED:
                    time.sleep(3 * PATIENCE_S)
                    stopped.append(child.pid)
                    child.resume()

    thread = threading.Thread(target=let_go)
    thread.start()
    assert load() == list(range(8))
    thread.join()
    assert len(stopped) == LOADERS
    assert hanging.forks == LOADERS
