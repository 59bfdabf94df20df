"""What is replaced while something is metered is put back, in whatever order."""

from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

import worldsize
from worldsize.hook.patches import Patches


class Base:
    inherited = "inherited"


class Owner(Base):
    own = "own"


class Slotted:
    __slots__ = ("held",)
    held: str


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("name", ["own", "inherited"])
def test_in_whatever_order_they_are_closed(order: tuple[int, ...], name: str) -> None:
    before = dict(vars(Owner))
    patches = [Patches() for _ in range(3)]
    for number, each in enumerate(patches):
        each.replace(Owner, name, number)
    for number in order:
        assert getattr(Owner, name) in range(3)
        patches[number].close()
    assert dict(vars(Owner)) == before


def test_what_somebody_else_put_over_it_stays() -> None:
    owner, patches = SimpleNamespace(name="first"), Patches()
    patches.replace(owner, "name", "ours")
    owner.name = "somebody else's"
    patches.close()
    assert owner.name == "somebody else's"


def test_an_owner_without_a_dictionary() -> None:
    owner, patches = Slotted(), Patches()
    owner.held = "before"
    patches.replace(owner, "held", "ours")
    patches.close()
    assert owner.held == "before"


def test_an_error_keeps_nothing_else_from_being_put_back() -> None:
    owner, patches = SimpleNamespace(name="before"), Patches()
    patches.replace(owner, "name", "ours")

    def fails() -> None:
        raise ValueError("it cannot be taken off")

    patches.on_close(fails)
    with pytest.raises(ValueError, match="cannot be taken off"):
        patches.close()
    assert owner.name == "before"


def test_two_meters_that_are_closed_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    backward, all_reduce = Tensor.backward, dist.all_reduce
    meters = []
    for name in ("first", "second"):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        meter = worldsize.meter(model, optimizer, out=tmp_path / name)
        meters.append((meter, model, optimizer))
    for meter, model, optimizer in meters:
        for batch in meter([torch.ones(3, 2)] * 6):
            model(batch).sum().backward()
            optimizer.step()
        meter.close()
    assert Tensor.backward is backward
    assert dist.all_reduce is all_reduce
