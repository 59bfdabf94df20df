"""What is seen of a loop that hands nothing over: its loaders, and what it does beside training."""

import io
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from worldsize.hook.finding import Finder
from worldsize.hook.watch import Watch
from worldsize.measure.clocks import clock_for
from worldsize.measure.timeline import Timeline


@contextmanager
def watched() -> Iterator[list[list[str]]]:
    """See what this process does as it is seen in a program of somebody else: of each step its stretches."""
    steps, errors = list[list[str]](), list[Exception]()
    timeline = Timeline(clock_for(torch.device("cpu")))

    def finished(samples: int, epoch: int) -> None:
        finder.stepped()
        steps.append([name for name, _ in timeline.take().phases])

    watch = Watch(None, None, finished, errors.append, timeline, by_optimizer=True)
    try:
        finder = Finder(watch)
        yield steps
    finally:
        watch.close()
    assert not errors


class Training:
    """A model and its optimizer."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.held_out = loader()

    def step(self, batch: torch.Tensor) -> None:
        self.model(batch).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def evaluate(self) -> None:
        self.model.eval()
        with torch.no_grad():
            for [batch] in self.held_out:
                self.model(batch)
        self.model.train()


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.ones(8, 4)), 4)


def test_to_make_an_iterator_is_to_begin_a_loader_anew() -> None:
    """Its processes begin then, and its sampler draws the order: a loop may do so in each step."""
    training = Training()
    with watched() as steps:
        for _ in range(4):
            [batch] = next(iter(loader()))
            training.step(batch)
    begun = [each[:4] for each in steps[1:]]
    assert begun == [["other", "restart", "other", "data_wait"]] * 3


def test_a_loader_of_another_thread_holds_up_no_step() -> None:
    """It hands its batches on; what the training thread waits for is that."""
    training, made = Training(), list[torch.Tensor]()

    def load() -> None:
        made.extend(batch for [batch] in loader())

    with watched() as steps:
        for _ in range(4):
            beside = threading.Thread(target=load)
            beside.start()
            beside.join()
            training.step(made.pop())
    assert all(not {"data_wait", "restart"} & set(each) for each in steps[1:])
    assert len(steps) == 4


def test_an_evaluation_is_one_stretch_with_all_that_it_waits_for() -> None:
    """From the second one on: what a loader is for shows when its batches are used."""
    training = Training()
    with watched() as steps:
        for number in range(6):
            if number % 2:
                training.evaluate()
            training.step(torch.ones(4, 4))
    for number, each in enumerate(steps[2:], start=2):
        assert set(each) == {"other", "forward", "backward", "optimizer"} | ({"evaluation"} if number % 2 else set())
        assert each[-4:] == ["forward", "backward", "other", "optimizer"]


LOG = logging.getLogger("loop")


def waits_for_a_thread() -> None:
    made = queue.Queue[int]()
    threading.Timer(0.01, made.put, (1,)).start()
    made.get()


def waits_for_a_result() -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sum, [1]).result()


@pytest.mark.parametrize(
    ("beside", "name"),
    [
        (lambda: torch.save({"weights": torch.ones(3)}, io.BytesIO()), "checkpoint"),
        (lambda: print("loss", 0.5), "logging"),  # noqa: T201 - as a loop does
        (lambda: LOG.warning("loss"), "logging"),
        (waits_for_a_thread, "data_wait"),
        (waits_for_a_result, "data_wait"),
    ],
)
def test_what_a_loop_does_beside_has_its_name(beside: Callable[[], None], name: str) -> None:
    """Of the thread that trains; what another thread does holds up no step."""
    training = Training()
    with watched() as steps:
        for number in range(6):
            training.step(torch.ones(4, 4))
            if number == 2:
                beside()
            if number == 4:
                other = threading.Thread(target=beside)
                other.start()
                other.join()
    assert [name in each for each in steps] == [False, False, False, True, False, False]
    assert torch.save.__module__ == "torch.serialization"
    assert print.__module__ == "builtins"
