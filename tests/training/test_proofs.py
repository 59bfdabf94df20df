"""Real processes prove that they train as the reference does, and whatever does not is caught and named."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs import start
from proofs import case
from worldsize.config import CellSettings
from worldsize.results.check_records import RankCheck
from worldsize.results.verify_records import Proof, RankProof

CASES: dict[str, CellSettings] = {
    "all-reduce": case("all-reduce"),
    "ddp": case("ddp"),
    "bucketed": case("bucketed", loader="per-sample"),
    "muon": case("ddp", optimizer="muon", learning_rate=0.02),
    "sums": case(":Sums"),
    "skips": case(":Skips"),
    "disagrees": case(":Disagrees"),
    "late": case(":Late"),
    "single precision": case("ddp", model=":single"),
    "data by rank": case("all-reduce", data=":by_rank"),
    "sampler left unset": case("all-reduce", leave_out=("sampler-epoch",)),
    "other rates": case("all-reduce", leave_out=("learning-rate",), lr_scaling="linear"),
    "steady": case("ddp", model=":steady"),
}
STEPS = 3

Prove = Callable[[str], list[RankProof]]
Check = Callable[[str], list[RankCheck]]


@pytest.fixture(scope="module")
def take(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., list[Any]]]:
    """Two processes that do one case after the other."""
    cases = [settings.model_dump(mode="json") for settings in CASES.values()]
    with contextlib.closing(start("proofs:enter", 2, tmp_path_factory.mktemp("proofs"), cases=cases)) as job:
        job.receive()

        def take(name: str, **turn: Any) -> list[Any]:
            job.send({"block": list(CASES).index(name), **turn})
            return job.receive()

        yield take


@pytest.fixture(scope="module")
def prove(take: Callable[..., list[Any]]) -> Prove:
    return lambda name: [RankProof.model_validate(reply["proof"]) for reply in take(name, op="steps", count=STEPS)]


@pytest.fixture(scope="module")
def check(take: Callable[..., list[Any]]) -> Check:
    return lambda name: [RankCheck.model_validate(reply["check"]) for reply in take(name, op="verify", count=2)]


def proof_of(ranks: list[RankProof]) -> Proof:
    first, second = ranks
    assert first.proof is not None
    assert second.proof is None, "rank 0 alone knows the reference"
    return first.proof


def read_by(ranks: list[RankProof]) -> list[list[str]]:
    """What is read in each step, rank after rank."""
    return [
        [each for samples in step for each in samples.digests]
        for step in zip(*(rank.samples for rank in ranks), strict=True)
    ]


@pytest.mark.parametrize("name", ["all-reduce", "ddp", "bucketed", "muon"])
def test_a_model_with_batchnorm_and_dropout_trains_as_the_reference(prove: Prove, name: str) -> None:
    ranks = prove(name)
    proof = proof_of(ranks)
    assert (proof.arithmetic, proof.fallback, proof.compared_steps, proof.dropouts) == ("fp64", None, STEPS, 1)
    assert proof.largest_gradient is not None
    assert proof.largest_weight is not None
    assert proof.largest_gradient < 1e-12
    assert proof.largest_weight < 1e-12
    assert (proof.gradients, proof.weights, proof.ranks) == (None, None, None)
    assert read_by(ranks) == [samples.digests for samples in ranks[0].expected]
    assert [samples.epoch for samples in ranks[1].samples] == [0, 0, 0, 1]


def test_only_ddp_gives_all_ranks_the_same_buffers(prove: Prove) -> None:
    assert proof_of(prove("ddp")).buffers_apart_from is None
    assert proof_of(prove("all-reduce")).buffers_apart_from == 1, "at the start of step 0 all have those of rank 0"


def test_a_strategy_that_forgets_to_divide_is_named_with_its_first_parameter(prove: Prove) -> None:
    proof = proof_of(prove("sums"))
    assert proof.gradients is not None
    assert (proof.gradients.step, proof.gradients.parameter) == (0, "1.0.weight")  # layer 0 is not trained
    assert proof.gradients.relative == pytest.approx(1.0)  # twice the gradient
    assert proof.weights is not None
    assert proof.ranks is None


def test_a_parameter_that_is_left_out_is_named(prove: Prove) -> None:
    proof = proof_of(prove("skips"))
    assert proof.gradients is not None
    assert (proof.gradients.step, proof.gradients.parameter) == (0, "4.bias")
    assert proof.ranks is not None
    assert (proof.ranks.step, proof.ranks.parameter) == (0, "4.bias")


def test_ranks_that_begin_with_other_weights_are_found(prove: Prove) -> None:
    proof = proof_of(prove("disagrees"))
    assert proof.ranks is not None
    assert (proof.ranks.step, proof.ranks.parameter) == (0, "1.0.weight")
    assert proof.gradients is not None, "the mean of gradients at different weights is not the reference's"


def test_the_first_step_that_differs_is_named(prove: Prove) -> None:
    proof = proof_of(prove("late"))
    assert proof.gradients is not None
    assert proof.weights is not None
    assert proof.gradients.step == proof.weights.step == 1


def test_a_model_that_refuses_doubles_is_compared_in_its_first_step(prove: Prove) -> None:
    proof = proof_of(prove("single precision"))
    assert (proof.arithmetic, proof.compared_steps, proof.tolerance) == ("fp32", 1, 1e-4)
    assert proof.fallback == "it converts to float32"
    assert proof.largest_weight is None
    assert (proof.gradients, proof.ranks) == (None, None)


def test_data_that_depend_on_the_rank_are_found(prove: Prove) -> None:
    ranks = prove("data by rank")
    mine, expected = read_by(ranks), [samples.digests for samples in ranks[0].expected]
    assert [samples.digests for samples in ranks[0].samples] == [step[:4] for step in expected]
    assert mine != expected


def test_an_order_that_is_not_drawn_anew_in_each_epoch_is_found(prove: Prove) -> None:
    ranks = prove("sampler left unset")
    differs = [a != b.digests for a, b in zip(read_by(ranks), ranks[0].expected, strict=True)]
    assert differs == [False, False, False, True]


def test_a_learning_rate_that_ranks_do_not_agree_on_is_found(prove: Prove) -> None:
    proof = proof_of(prove("other rates"))
    assert proof.ranks is not None
    assert proof.ranks.step == 0


def test_the_short_proof_finds_nothing_wrong_with_those_that_are_right(check: Check) -> None:
    for name in ("all-reduce", "ddp", "steady"):
        first, second = check(name)
        for found in (first, second):
            assert (found.gradients, found.apart, found.left_out) == (None, None, None)
            assert found.largest is not None
            assert found.largest < 1e-6
        assert [len(batch) for batch in first.samples] == [4 * 8] * 2
        assert not {*first.samples} & {*second.samples}


def test_the_short_proof_names_what_is_wrong(check: Check) -> None:
    expected = {"sums": "1.0.weight", "skips": "4.bias"}
    for name, parameter in expected.items():
        for found in check(name):
            assert found.gradients is not None
            assert found.gradients.parameter == parameter
            assert found.apart is None
    for found in check("disagrees"):
        assert found.apart == "1.0.weight"
        assert found.gradients is None


def test_the_short_proof_reads_what_the_long_one_reads_in_its_order(check: Check, prove: Prove) -> None:
    orders = []
    for ranks in (check("all-reduce"), check("ddp")):
        orders.append("".join(part for batch in zip(*(rank.samples for rank in ranks), strict=True) for part in batch))
    assert orders[0] == orders[1]
    assert len(set(orders[0][i : i + 8] for i in range(0, len(orders[0]), 8))) == 16
