"""nn.DataParallel's algorithm on the threads of one process."""

import os
import threading
from collections.abc import Callable
from typing import Any

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


class Structured(nn.Module):
    """Two inputs, one of them by name, and outputs of several kinds; one of its layers may not be used."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.mean, self.spread = nn.Embedding(5, 3), nn.Linear(3, 2), nn.Linear(3, 1)

    def forward(self, batch: dict[str, Tensor], *, scale: Tensor, shift: Tensor) -> dict[str, object]:
        assert batch["tokens"].dtype == torch.int64
        hidden = self.embedding(batch["tokens"]) * scale[:, None] + shift
        heads = (self.mean(hidden), self.spread(hidden))
        return {"heads": heads, "size": heads[0].square().mean(), "best": heads[0].argmax(dim=1), "name": "two heads"}


@pytest.mark.parametrize("both", [False, True])
def test_inputs_and_outputs_of_any_structure_are_those_of_the_model(both: bool) -> None:
    torch.manual_seed(0)
    model = Structured()
    batch, scale, shift = {"tokens": torch.tensor([0, 1, 2, 3, 4, 0])}, torch.rand(6), torch.rand(3)

    def backward(called: nn.Module) -> tuple[dict[str, Tensor | None], dict[str, Any]]:
        model.zero_grad()
        found = called(batch, scale=scale, shift=shift)
        mean, spread = found["heads"]
        loss = mean.square().sum() + found["size"].mean() + (spread.sum() if both else 0)
        loss.backward()
        return {name: parameter.grad for name, parameter in model.named_parameters()}, found

    wanted, alone = backward(model)
    found, together = backward(wrapped(model, 2).train())
    for name, gradient in wanted.items():
        other = found[name]
        assert (gradient is None) == (other is None) == (not both and name.startswith("spread"))
        assert gradient is None or other is None or torch.allclose(gradient, other, atol=1e-6)
    assert all(torch.allclose(a, b) for a, b in zip(alone["heads"], together["heads"], strict=True))
    assert torch.equal(alone["best"], together["best"])
    assert together["name"] == "two heads"
    assert together["size"].shape == (2,)  # one number of each worker
    assert torch.allclose(together["size"].mean(), alone["size"])
