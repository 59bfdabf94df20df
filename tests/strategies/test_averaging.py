"""A lossy averaging is as near to the mean as its traits say, the same on all ranks, and loses nothing for good."""

from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from averaging import PIECE, SHAPES, gradients
from jobs import start
from worldsize import sending
from worldsize.launch.placement import place
from worldsize.measure.machine import allowed_cores
from worldsize.strategies.channel import flat
from worldsize.traits import TRAITS
from worldsize.wire import low_rank_elements

STRATEGIES = [name for name, traits in TRAITS.items() if traits.buckets]
LOSSY = [name for name in STRATEGIES if not TRAITS[name].exact]
STEPS = 12
Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module", params=[2, 3])
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ranks]:
    """Strategy → what each rank came to."""
    ranks, folder = request.param, tmp_path_factory.mktemp("averaging")
    placement = place(
        world_size=ranks, processes=ranks, threads_per_worker=1, cores=allowed_cores(), gpus=0, backend="gloo"
    )
    job = start(
        "averaging:enter",
        ranks,
        folder / "job",
        folder=str(folder),
        strategies=STRATEGIES,
        placement=placement.model_dump(mode="json"),
    )
    try:
        job.receive()
        for number in range(len(STRATEGIES)):
            job.send({"op": "steps", "block": number, "count": STEPS})
            job.receive()
    finally:
        job.close()
    return {name: [torch.load(folder / f"{name}-rank{rank}.pt") for rank in range(ranks)] for name in STRATEGIES}


def mean(ranks: int, step: int) -> Tensor:
    """Of all ranks' gradients, flat."""
    each = [torch.cat([flat(gradient) for gradient in gradients(rank, step)]) for rank in range(ranks)]
    return torch.stack(each).mean(dim=0)


def off(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("name", STRATEGIES)
def test_all_ranks_have_the_same_bits(world: dict[str, Ranks], name: str) -> None:
    first, *others = world[name]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first["means"], other["means"], strict=True))


@pytest.mark.parametrize("name", [name for name in STRATEGIES if TRAITS[name].exact])
def test_an_exact_one_is_the_mean(world: dict[str, Ranks], name: str) -> None:
    ranks = world[name]
    assert max(off(ranks[0]["means"][step], mean(len(ranks), step)) for step in range(STEPS)) < 1e-12


@pytest.mark.parametrize("name", [name for name in LOSSY if TRAITS[name].step_error is not None])
def test_a_step_is_off_by_what_the_traits_say_and_not_by_nothing(world: dict[str, Ranks], name: str) -> None:
    ranks, bound = world[name], TRAITS[name].step_error
    assert bound is not None
    found = [off(ranks[0]["means"][step], mean(len(ranks), step)) for step in range(STEPS)]
    assert max(found) < bound
    assert min(found) > bound / 1000  # or nothing was compressed


@pytest.mark.parametrize("name", [name for name in LOSSY if TRAITS[name].feedback])
def test_what_was_applied_and_what_is_held_back_are_all_that_was_given(world: dict[str, Ranks], name: str) -> None:
    """The sum over steps is exact, up to rounding in double precision."""
    ranks = world[name]
    given, applied = torch.zeros_like(mean(1, 0)), torch.zeros_like(mean(1, 0))
    for step in range(STEPS):
        given += mean(len(ranks), step)
        applied += ranks[0]["means"][step]
        held = torch.stack([each["held"][step]["residuals"] for each in ranks]).mean(dim=0)
        assert off(applied + _whole(name, held), given) < 1e-12
    assert off(applied, given) > 1e-4  # something is held back


def _whole(name: str, held: Tensor) -> Tensor:
    """Residuals of the parameters that have one, at their places among all."""
    if "powersgd" not in name:
        return held
    pieces, at = [], 0
    for shape in SHAPES:
        size = int(torch.tensor(shape).prod())
        thin = low_rank_elements(shape, 3) < size
        pieces.append(held[at : at + size] if thin else torch.zeros(size, dtype=held.dtype))
        at += size if thin else 0
    return torch.cat(pieces)


@pytest.mark.parametrize("name", LOSSY)
def test_messages_are_those_of_the_traits_in_the_same_order_on_all_ranks(
    world: dict[str, Ranks], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "INT8_PIECE", PIECE)
    ranks = world[name]
    for each in ranks[1:]:
        assert each["messages"] == ranks[0]["messages"]
    kinds = [kind.replace("_", "-") for kind, _ in ranks[0]["messages"][-1]]
    assert kinds == [kind for first in range(0, len(SHAPES), 2) for kind in _sent(name, SHAPES[first : first + 2])]


def _sent(name: str, shapes: tuple[tuple[int, ...], ...]) -> list[str]:
    """The messages of a bucket; one that a low rank makes no smaller travels as it is."""
    if TRAITS[name].sent_bytes is not None and all(low_rank_elements(each, 3) == prod(each) for each in shapes):
        return ["all-reduce"]
    return [kind for kind, _ in TRAITS[name].messages(4 * sum(map(prod, shapes)))]


@pytest.mark.parametrize("name", [name for name in LOSSY if "powersgd" in name])
def test_the_first_steps_of_a_low_rank_are_exact(world: dict[str, Ranks], name: str) -> None:
    ranks = world[name]
    found = [off(ranks[0]["means"][step], mean(len(ranks), step)) for step in range(STEPS)]
    assert max(found[:2]) < 1e-12
    assert min(found[2:]) > 0.1
