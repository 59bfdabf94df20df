"""nn.DataParallel's algorithm on the threads of one process."""

import os
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from worldsize.measure.machine import allowed_cores
from worldsize.strategies import Channel, World
from worldsize.strategies.data_parallel import DataParallel

CPU = torch.device("cpu")


def wrapped(model: nn.Module, workers: int, cores: tuple[tuple[int, ...], ...] = ()) -> nn.Module:
    return DataParallel(World(Channel(0, 1), workers, CPU, cores)).wrap(model)


class Told(nn.Module):
    """A linear layer that calls a function with its inputs in each forward; its copies call the same."""

    def __init__(self, tell: Callable[[Tensor], None]) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.told = [tell]

    def __deepcopy__(self, memo: dict[int, object]) -> "Told":
        twin = Told(self.told[0])
        twin.load_state_dict(self.state_dict())
        return twin

    def forward(self, inputs: Tensor) -> Tensor:
        self.told[0](inputs)
        outputs: Tensor = self.layer(inputs)
        return outputs


def test_each_worker_gets_its_part_on_a_thread_with_its_own_cores() -> None:
    cores = tuple((core,) for core in (*allowed_cores(), *allowed_cores())[:2])
    seen: dict[str, tuple[list[float], set[int]]] = {}

    def tell(inputs: Tensor) -> None:
        seen[threading.current_thread().name] = (inputs[:, 0].tolist(), os.sched_getaffinity(0))

    before = os.sched_getaffinity(0)
    model = wrapped(Told(tell), 2, cores).train()
    model(torch.arange(12.0).reshape(4, 3)).sum().backward()
    by_worker = [seen[name] for name in sorted(seen)]
    assert by_worker == [([0.0, 3.0], set(cores[0])), ([6.0, 9.0], set(cores[1]))]
    assert os.sched_getaffinity(0) == before


@pytest.mark.parametrize(("training", "samples"), [(False, 4), (True, 1)])
def test_without_training_or_with_too_few_samples_the_model_itself_is_called(training: bool, samples: int) -> None:
    threads = []
    model = wrapped(Told(lambda _: threads.append(threading.current_thread())), 2).train(training)
    model(torch.ones(samples, 3))
    assert threads == [threading.main_thread()]


def test_the_replicas_are_no_part_of_the_model() -> None:
    inner = nn.Linear(3, 2)
    model = wrapped(inner, 3)
    assert list(model.parameters()) == list(inner.parameters())


def test_replicas_follow_the_model() -> None:
    inner = nn.Linear(3, 2)
    model = wrapped(inner, 2).train()
    model(torch.ones(2, 3))
    with torch.no_grad():
        inner.weight.fill_(1)
        inner.bias.fill_(0)
    assert model(torch.ones(2, 3)).tolist() == [[3, 3], [3, 3]]


def test_autocast_reaches_the_threads() -> None:
    model = wrapped(nn.Linear(3, 2), 2).train()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.ones(2, 3)).dtype == torch.bfloat16
    assert model(torch.ones(2, 3)).dtype == torch.float32


def test_what_a_replica_raises_is_raised() -> None:
    def tell(inputs: Tensor) -> None:
        if inputs[0, 0] == 3:
            raise ValueError("the second sample is bad")

    model = wrapped(Told(tell), 2).train()
    with pytest.raises(ValueError, match="second sample"):
        model(torch.arange(6.0).reshape(2, 3))
