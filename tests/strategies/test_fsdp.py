"""Training in shards is the same training, with a part of it on each rank."""

from collections import Counter
from contextlib import closing
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import sharded
from case_jobs import CaseJobs
from sharded import STEPS, Seen
from worldsize.config import CellSettings
from worldsize.data import load_data
from worldsize.errors import UsageError
from worldsize.models import build_model
from worldsize.strategies.base import World
from worldsize.strategies.channel import Channel
from worldsize.strategies.fsdp import FSDP
from worldsize.strategies.shards import blocks_of
from worldsize.training.classifier import Classifier
from worldsize.training.proof import distances, largest
from worldsize.training.reference import Reference

TOLERANCE = 1e-9
CLIP_NORM = 0.5
DOUBLE_BYTES = 8
WORLD_SIZES = (2, 4)


def settings_of(world_size: int) -> CellSettings:
    return CellSettings(
        model="sharded:net",
        data="synthetic:3x16x16:10:2560",
        train_samples=64,
        test_samples=100 * world_size + 1,  # the last rank has a batch more than the others
        strategy="fsdp",
        world_size=world_size,
        batch_size=2,
        learning_rate=0.05,
        clip_norm=CLIP_NORM,
        epochs=2,
        checkpoint=True,
    )


@lru_cache
def expected(world_size: int) -> dict[str, Any]:
    """What one process comes to with the batches of all."""
    settings = settings_of(world_size)
    data = load_data(settings)
    model = build_model(settings.model, classes=data.classes, shape=data.shape, seed=settings.seed)
    Classifier(settings, data).put(model, torch.device("cpu"))
    reference = Reference(model, settings, data, torch.device("cpu"))
    gradients: list[dict[str, Tensor]] = []
    norms = []
    hook = reference.optimizer.register_step_pre_hook(lambda *_: gradients.append(taken(reference)))
    for _ in range(STEPS):
        reference.backward()
        norms.append(float(torch.cat([gradient.flatten() for gradient in taken(reference).values()]).norm()))
        reference.step(settings.learning_rate)
    hook.remove()
    weights = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    reference.backward()
    return {"gradients": gradients, "norms": norms, "weights": weights, "next": taken(reference)}


def taken(reference: Reference) -> dict[str, Tensor]:
    named = reference.model.named_parameters()
    return {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None}


@pytest.fixture(scope="module", params=WORLD_SIZES)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What each rank saw."""
    cases: list[tuple[CellSettings, dict[str, Any]]] = [(settings_of(request.param), {})]
    with closing(CaseJobs("sharded:enter", tmp_path_factory.mktemp("sharded"), cases)) as jobs:
        return [Seen(**found) for found in jobs.run(0)]


def far(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    assert found.keys() == wanted.keys()
    distance = largest(distances(found, wanted).values())
    assert distance is not None
    return distance


def test_gradients_and_weights_are_those_of_the_reference(ranks: list[Seen]) -> None:
    """In each step; gradients are clipped, so the norm is that of all shards."""
    wanted = expected(len(ranks))
    assert max(wanted["norms"]) > CLIP_NORM
    for seen in ranks:
        assert len(seen.gradients) == STEPS - 1
        assert max(map(far, seen.gradients, wanted["gradients"][:-1])) < TOLERANCE
        assert far(seen.weights, wanted["weights"]) < TOLERANCE


def test_each_shard_is_the_mean_of_the_ranks_and_not_their_sum(ranks: list[Seen]) -> None:
    """Of a gradient that is rank + 1 everywhere, in each precision; the last shard is smaller, or empty."""
    mean = sum(range(1, len(ranks) + 1)) / len(ranks)
    for dtype in ("torch.float32", "torch.float64", "torch.bfloat16"):
        shards = [seen.planted[dtype] for seen in ranks]
        assert sum(map(len, shards)) == 7 * 3
        assert {value for shard in shards for value in shard} == {mean}


def test_a_rank_alone_has_the_gradients_of_its_own_batch(ranks: list[Seen]) -> None:
    """Whole, and of true weights: their mean is the gradient of the reference."""
    mean = {name: torch.stack([seen.local[name] for seen in ranks]).mean(0) for name in ranks[0].local}
    assert far(mean, expected(len(ranks))["next"]) < TOLERANCE
    assert far(ranks[0].local, ranks[1].local) > 0.1


def test_every_message_is_seen(ranks: list[Seen]) -> None:
    """Those that torch's dispatcher counts are those of the timeline; clipping sends one beside FSDP's own."""
    blocks = len(ranks[0].block_bytes)
    for seen in ranks:
        assert Counter(kind for kind, *_ in seen.messages) == seen.counted
        assert seen.counted == {"all_gather": 2 * blocks + 1, "reduce_scatter": blocks + 1, "all_reduce": 1}
        assert all(awaited for kind, _, _, awaited in seen.messages if kind == "all_gather")
        assert all(blocking for kind, _, blocking, _ in seen.messages if kind == "reduce_scatter")


def test_the_next_block_travels_while_one_computes(ranks: list[Seen]) -> None:
    blocks = len(ranks[0].block_bytes)
    assert blocks == 3
    for seen in ranks:
        assert seen.overlapping >= 2 * (blocks - 1)


def test_bytes_are_those_of_the_formula(ranks: list[Seen]) -> None:
    """Up to what shards are padded with: the classifier has ten rows, which four ranks do not share evenly."""
    n = len(ranks)
    for seen in ranks:
        gathered = sum(size for kind, size, *_ in seen.messages if kind == "all_gather")
        scattered = sum(size for kind, size, *_ in seen.messages if kind == "reduce_scatter")
        padding = (-(-sharded.CLASSES // n) * n - sharded.CLASSES) * 17 * DOUBLE_BYTES
        assert gathered == seen.parameter_bytes + sum(seen.block_bytes) + padding
        assert scattered == seen.gradient_bytes + padding
        wanted = (n - 1) / n * (gathered + 2 * scattered - 3 * padding)
        assert seen.wire_bytes == pytest.approx(wanted, abs=2)
        assert seen.formula == "(N−1)/N·(parameters + blocks) + 2(N−1)/N·S (gloo)"


def test_a_step_without_synchronisation_sends_nothing_and_leaves_nothing(ranks: list[Seen]) -> None:
    for seen in ranks:
        assert seen.silent == [{}, {}, {}]
        assert seen.after_silence


def test_a_rank_holds_its_share_of_weights_gradients_and_optimizer(ranks: list[Seen]) -> None:
    for part in ("parameter_bytes", "gradient_bytes", "optimizer_bytes"):
        shares = [seen.memory[part] for seen in ranks]
        whole = ranks[0].parameter_bytes if part == "parameter_bytes" else ranks[0].gradient_bytes
        assert sum(shares) == whole
        assert max(shares) < 1.02 * whole / len(ranks)


def test_a_test_set_that_n_does_not_divide_is_evaluated_once(ranks: list[Seen]) -> None:
    """Ranks with a batch more than others wait for none; whole weights are gone afterwards."""
    assert {seen.test_samples for seen in ranks} == {100 * len(ranks) + 1}
    assert len({(seen.accuracy, seen.test_loss) for seen in ranks}) == 1
    assert ranks[0].test_loss == pytest.approx(
        ranks[0].plain_loss, rel=1e-6
    )  # logits are summed up in single precision
    assert not any(seen.apart for seen in ranks)
    assert all(seen.after_evaluation for seen in ranks)


def test_a_training_that_goes_on_from_a_checkpoint_is_the_one_that_was_not_stopped(ranks: list[Seen]) -> None:
    for seen in ranks:
        assert seen.went_on.keys() == seen.resumed.keys()
        assert all(torch.equal(weight, seen.resumed[name]) for name, weight in seen.went_on.items())
        assert any(not torch.equal(weight, seen.weights[name]) for name, weight in seen.went_on.items())


def test_blocks_are_parts_with_enough_weights_and_shared_ones_stay_with_the_root() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = torch.nn.Embedding(1000, 256)
            self.layers = torch.nn.ModuleList(torch.nn.Linear(256, 256) for _ in range(3))
            self.norm = torch.nn.LayerNorm(256)
            self.head = torch.nn.Linear(256, 1000, bias=False)
            self.head.weight = self.embedding.weight

    tied = Tied()
    assert blocks_of(tied) == [*tied.layers]
    inside = torch.nn.Module()
    inside.body, inside.head = tied, torch.nn.Linear(256, 300)
    assert blocks_of(inside) == [*tied.layers, inside.head]
    assert blocks_of(torch.nn.Linear(1000, 1000)) == []


def test_a_torch_that_cannot_leave_parameters_out_of_a_step_says_so_where_a_step_does() -> None:
    """torch 2.11 has no set_reduce_scatter_unused_params: their gradients would be missing without a word."""
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "spare": torch.nn.Linear(2, 1)})
    strategy = FSDP(World(Channel(0, 1), 1, torch.device("cpu")))
    strategy.model = model
    strategy.sharded = cast(Any, SimpleNamespace(takes_unused=False, accumulates=False))
    model["used"](torch.ones(1, 2)).sum().backward()
    with pytest.raises(UsageError, match=r"does not depend on spare\.weight, spare\.bias, and fsdp .*\nFreeze them"):
        strategy.synchronise()
    strategy.sharded = cast(Any, SimpleNamespace(takes_unused=False, accumulates=True))
    strategy.synchronise()  # gradients stay whole and on their rank, and no shard has one
    strategy.sharded = cast(Any, SimpleNamespace(takes_unused=False, accumulates=False))
    model["spare"].requires_grad_(False)
    strategy.synchronise()
    strategy.sharded = cast(Any, SimpleNamespace(takes_unused=True))
    model["spare"].requires_grad_(True)
    strategy.synchronise()
