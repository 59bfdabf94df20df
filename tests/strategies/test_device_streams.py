"""What follows several messages, on a CPU, which has no streams; `make gpu-check` has a GPU do the same."""

import pytest
import torch
from torch import Tensor
from torch.futures import Future

from worldsize.strategies.streams import after_all, future_on, used_here

CPU = torch.device("cpu")


def three() -> list[Future[Tensor]]:
    return [future_on(CPU) for _ in range(3)]


def test_what_is_made_of_all_values_comes_after_the_last_of_them() -> None:
    futures = three()
    made = after_all(futures, lambda values: torch.cat(values), CPU)
    for number in (2, 0, 1):  # they end in any order, and their values come in that in which they were given
        assert not made.done()
        futures[number].set_result(torch.tensor([number]))
    assert made.wait().tolist() == [0, 1, 2]


def test_an_error_reaches_who_waits() -> None:
    futures = three()
    made = after_all(futures, lambda values: torch.cat(values), CPU)
    for future in futures[:2]:
        future.set_result(torch.zeros(1))
    futures[2].set_exception(RuntimeError("Connection closed by peer"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="closed by peer"):
        made.wait()


def test_an_error_of_what_makes_it_does_so_too() -> None:
    futures = three()
    made = after_all(futures, lambda values: torch.cat([*values, torch.zeros(1, 1)]), CPU)
    for future in futures:
        future.set_result(torch.zeros(1))
    with pytest.raises(RuntimeError):
        made.wait()


def test_memory_of_a_cpu_needs_nobody_to_say_who_uses_it() -> None:
    tensor = torch.ones(3)
    used_here(tensor)
    assert tensor.tolist() == [1, 1, 1]
