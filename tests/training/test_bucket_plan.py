"""Buckets that are planned with the link and the backward of the model at hand."""

import copy
import dataclasses
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from worldsize.config.synchronisation import SynchronisationSettings
from worldsize.measure.clocks import HostClock
from worldsize.results.comm_records import AllReduceCost
from worldsize.sending import DDP_CAPS_BYTES
from worldsize.strategies import Channel, World, find_strategy
from worldsize.strategies.averaging import Exact
from worldsize.strategies.bucketed import Bucketed
from worldsize.strategies.half import Bf16
from worldsize.strategies.int8 import Int8
from worldsize.strategies.powersgd import PowerSGD
from worldsize.training import bucket_plan
from worldsize.training.bucket_plan import packing_s_per_byte, ready_times, with_planned_buckets

WORLD = World(Channel(0, 1), 2, torch.device("cpu"))
INPUTS, LABELS = torch.randn(4, 64), torch.zeros(4, dtype=torch.int64)


def loss(model: nn.Module) -> torch.Tensor:
    return F.cross_entropy(model(INPUTS), LABELS)


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    """Rank 0 tells the others what it decided; here there are none."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def model() -> nn.Module:
    frozen = nn.Linear(64, 64).requires_grad_(False)
    return nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), frozen, nn.ReLU(), nn.Linear(64, 10))


def test_gradients_are_ready_from_the_last_layer_to_the_first(model: nn.Module) -> None:
    first, norm, last = (slice(start, start + 2) for start in (0, 2, 4))  # weight and bias of each trained layer
    times = ready_times(model, loss, WORLD.device)
    assert len(times) == 6
    assert min(times) > 0
    assert max(times[last]) < min(times[norm])
    assert max(times[norm]) < min(times[first])


@pytest.mark.parametrize(
    ("link", "one_bucket"),
    [
        (AllReduceCost(alpha_s=1000, beta_bytes_per_s=1e12), True),  # each message costs: as few as can be
        (AllReduceCost(alpha_s=0, beta_bytes_per_s=1000), False),  # bytes cost: send what is there
    ],
)
def test_the_link_decides_how_many_buckets_there_are(model: nn.Module, link: AllReduceCost, one_bucket: bool) -> None:
    planned = with_planned_buckets(WORLD, model, loss, link, Bucketed)
    assert planned.bucket_groups is not None
    assert (len(planned.bucket_groups) == 1) == one_bucket
    assert sorted(index for group in planned.bucket_groups for index in group) == list(range(6))
    assert planned.bucket_bytes in DDP_CAPS_BYTES


def test_planning_leaves_the_model_as_it_was(model: nn.Module) -> None:
    before = copy.deepcopy(model.state_dict())
    with_planned_buckets(WORLD, model, loss, AllReduceCost(alpha_s=1e-5, beta_bytes_per_s=1e9), Bucketed)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


COSTS = {"bucketed-bf16": 2, "bucketed-int8": 512 / 516 * 4, "bucketed-powersgd": 16}
"""How many bytes of gradients of this model a byte on the wire stands for, about."""


@pytest.mark.parametrize("name", COSTS)
def test_a_strategy_that_packs_is_planned_with_the_bytes_that_it_sends(
    model: nn.Module, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a link and ready times at which buckets of the plain one are too dear to be joined, and its are not."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    seen: list[int] = []

    def cost(collective: str, world_size: int, alpha_s: float, beta: float, size: int, segment_s: float) -> float:
        seen.append(size)
        return alpha_s + size / beta

    monkeypatch.setattr(bucket_plan, "cost_s", cost)
    world = dataclasses.replace(WORLD, options=SynchronisationSettings(powersgd_rank=2))
    with_planned_buckets(world, model, loss, AllReduceCost(alpha_s=1.0, beta_bytes_per_s=1e9), find_strategy(name))
    whole = sum(p.numel() * p.element_size() for p in parameters)
    assert whole / max(seen) == pytest.approx(COSTS[name], rel=0.35)


def test_packing_takes_time_and_the_exact_ones_have_none(model: nn.Module) -> None:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    sizes = [4 * parameter.numel() for parameter in parameters]
    assert packing_s_per_byte(Exact, parameters, sizes, WORLD) == 0
    for averaging in (Bf16, Int8, PowerSGD):
        assert packing_s_per_byte(averaging, parameters, sizes, WORLD) > 0


class Ahead(HostClock):
    """A device that computes long after the host has asked for it, each gradient 3 ms after the one before it."""

    def __init__(self) -> None:
        self.marks = 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def read(self, mark: int) -> int:
        return 10**9 + 3_000_000 * mark

    def rebase(self) -> None:
        self.marks = 0


def test_buckets_are_planned_by_when_the_device_has_a_gradient(
    model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_plan, "clock_for", lambda device: Ahead())
    times = ready_times(model, loss, WORLD.device)
    assert sorted(times) == pytest.approx([0.003 * number for number in range(1, 7)])
