"""Communicating less often: micro-batches whose gradients add up, and ranks that meet now and then (method.md §10)."""

import contextlib
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from case_jobs import CaseJobs
from often import Tensors, apart, mean_gradients, same
from parity import DATA
from worldsize.config import CellSettings

EXACT = 1e-9
"""In double precision another order of sums is 1e-14 or less."""
TIMES, STEPS = 3, 2
WARMUP, EVERY = 2, 3
ALL_STEPS = WARMUP + 3 * EVERY
EXACT_ONES = [
    *[("single", 1), ("data-parallel", 2), ("gather-scatter", 2), ("all-reduce", 2), ("all-reduce", 4), ("ddp", 2)],
    *[("ddp", 4), ("bucketed", 2)],
]


def cell(strategy: str, world_size: int, **settings: Any) -> CellSettings:
    given = {"model": "parity:small_double", "data": DATA, "batch_size": 2, "bucket_mb": 0.5, **settings}
    return CellSettings(strategy=strategy, world_size=world_size, **given)


def accumulating(strategy: str, world_size: int) -> CellSettings:
    return cell(strategy, world_size, accumulate=TIMES)


def meeting(strategy: str, world_size: int) -> CellSettings:
    return cell(strategy, world_size, sync_warmup_steps=WARMUP, sync_every=EVERY, learning_rate=0.05)


CASES: dict[str, tuple[CellSettings, dict[str, Any]]] = {
    **{f"{name}-{n}": (accumulating(name, n), {"what": "steps"}) for name, n in EXACT_ONES},
    **{
        f"{name}-{n}-{what}": (meeting(name, n), {"what": what, "stop": WARMUP + EVERY + 1})
        for name in ("local-sgd", "diloco")
        for n, what in ((2, "steps"), (4, "steps"), (2, "whole"))
    },
}


Left = dict[str, list[dict[str, Any]]]
"""What each rank came to, by the name of the case."""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """All cases, one after the other."""
    with contextlib.closing(CaseJobs("often:enter", tmp_path_factory.mktemp("often"), list(CASES.values()))) as jobs:
        return {
            name: jobs.run(number, count=STEPS if settings.accumulate == TIMES else ALL_STEPS)
            for number, (name, (settings, _)) in enumerate(CASES.items())
        }


def distance(found: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest, over all tensors, of the norm of the difference ÷ the norm."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize(("strategy", "world_size"), EXACT_ONES)
def test_gradients_are_the_mean_of_all_micro_batches(left: Left, strategy: str, world_size: int) -> None:
    wanted = mean_gradients(accumulating(strategy, world_size), STEPS)
    for rank in left[f"{strategy}-{world_size}"]:
        assert len(rank["gradients"]) == STEPS
        for found, mean in zip(rank["gradients"], wanted, strict=True):
            assert distance(found, mean) < EXACT


def test_the_global_batch_has_all_micro_batches() -> None:
    settings = accumulating("ddp", 4)
    assert settings.global_batch == 4 * 2 * TIMES


@pytest.mark.parametrize("strategy", ["all-reduce", "ddp", "bucketed"])
def test_only_the_last_micro_batch_communicates(left: Left, strategy: str) -> None:
    """All of a step's gradients travel once, and none of the buffers more often."""
    rank = left[f"{strategy}-2"][0]
    size = sum(each.numel() * each.element_size() for each in rank["gradients"][0])
    for messages in rank["messages"]:
        assert sum(payload for kind, payload, _ in messages if kind == "all_reduce") == size
        assert sum(kind == "broadcast" for kind, *_ in messages) == (strategy == "ddp")


def test_replicas_are_made_for_each_micro_batch(left: Left) -> None:
    kinds = [kind for kind, *_ in left["data-parallel-2"][0]["messages"][-1]]
    assert kinds == ["replicate", "gather", "reduce"] * TIMES


@pytest.mark.parametrize(("strategy", "world_size"), EXACT_ONES)
def test_each_micro_batch_has_its_stretches(left: Left, strategy: str, world_size: int) -> None:
    for phases in left[f"{strategy}-{world_size}"][0]["phases"]:
        each = ["forward", "backward", "after_backward"]
        assert phases == ["data_wait", "copy", *each * TIMES, "other", "optimizer"]


def by_mean(ranks: Sequence[Tensors], step: int) -> None:
    """Local SGD: the weights become their mean after each period."""
    if step > WARMUP and (step - WARMUP) % EVERY == 0:
        for column in zip(*ranks, strict=True):
            mean = torch.stack(list(column)).mean(dim=0)
            for weight in column:
                weight.copy_(mean)


class Outer:
    """DiLoCo's outer step by torch's own SGD (Douillard et al. 2023, algorithm 1)."""

    def __init__(self) -> None:
        self.anchor: Tensors = []

    def __call__(self, ranks: Sequence[Tensors], step: int) -> None:
        if step == WARMUP:
            self.anchor = [weight.detach().clone() for weight in ranks[0]]
            self.sgd = torch.optim.SGD(self.anchor, lr=0.7, momentum=0.9, nesterov=True)
        elif step > WARMUP and (step - WARMUP) % EVERY == 0:
            for anchor, column in zip(self.anchor, zip(*ranks, strict=True), strict=True):
                anchor.grad = torch.stack([anchor - weight for weight in column]).mean(dim=0)
            self.sgd.step()
            for anchor, column in zip(self.anchor, zip(*ranks, strict=True), strict=True):
                for weight in column:
                    weight.copy_(anchor)


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_weights_are_those_of_the_arithmetic_by_hand(left: Left, strategy: str, world_size: int) -> None:
    """And the same bit for bit on all ranks after the warm-up and after each meeting, never in between."""
    meet = by_mean if strategy == "local-sgd" else Outer()
    wanted = apart(meeting(strategy, world_size), ALL_STEPS, meet)
    found = [rank["weights"] for rank in left[f"{strategy}-{world_size}-steps"]]
    for step in range(ALL_STEPS):
        for rank in range(world_size):
            assert distance(found[rank][step], wanted[step][rank]) < EXACT
        together = step < WARMUP or (step + 1 - WARMUP) % EVERY == 0
        for rank in range(1, world_size):
            assert same(found[rank][step], found[0][step]) is together
            assert together or distance(found[rank][step], found[0][step]) > EXACT * 1e3


@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_nothing_travels_between_two_meetings(left: Left, strategy: str) -> None:
    for rank in left[f"{strategy}-4-steps"]:
        size = sum(each.numel() * each.element_size() for each in rank["weights"][0])
        for step, messages in enumerate(rank["messages"]):
            together = step < WARMUP or (step + 1 - WARMUP) % EVERY == 0
            assert messages == ([("all_reduce", size, True)] if together else [])


@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_a_training_goes_on_from_the_middle_of_a_period(left: Left, strategy: str) -> None:
    for rank in left[f"{strategy}-2-whole"]:
        assert same(rank["gone_on"], rank["resumed"])
        assert same(list(rank["state"].values()), list(rank["resumed_state"].values()))
        assert not same(rank["own"], rank["gone_on"])


@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_rolled_back_steps_leave_no_trace_and_silent_ones_send_nothing(left: Left, strategy: str) -> None:
    for rank in left[f"{strategy}-2-whole"]:
        assert rank["rolled back"]
        assert rank["messages_without_synchronisation"] == 0


@pytest.mark.parametrize("strategy", ["local-sgd", "diloco"])
def test_the_average_is_evaluated_and_each_rank_keeps_its_own(left: Left, strategy: str) -> None:
    ranks = left[f"{strategy}-2-whole"]
    assert not same(ranks[0]["own"], ranks[1]["own"])
    for rank in ranks:
        assert rank["evaluated"]
        assert rank["evaluation"].divergence.apart
        assert rank["evaluation"].rank_accuracy is None
        assert rank["evaluation"].test_loss == ranks[0]["evaluation"].test_loss
