"""Real processes measure what lossy strategies lose, and find whatever these do beyond what they say of themselves."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobs import start
from lossy_proofs import HERE
from proofs import case
from worldsize.config import CellSettings
from worldsize.results.check_records import Losses, RankCheck
from worldsize.results.verify_records import Proof, RankProof
from worldsize.strategies import STRATEGIES
from worldsize.traits import TRAITS

LOSSY = [name for name, traits in TRAITS.items() if not traits.exact and traits.travels != "shards"]
GRADIENTS = [name for name in LOSSY if TRAITS[name].travels == "gradients"]
FAULTS = {
    "ForgetsToDivide": ({"error"}, None),
    "DropsABucket": ({"error", "lost"}, "4.bias"),
    "KeepsABucket": ({"error", "gradients-apart"}, "4.bias"),
    "LosesSome": ({"feedback"}, None),
    "ClaimsFeedback": ({"no-feedback"}, None),
    "ClaimsToHold": ({"feedback"}, None),
    "MeetsWrongly": ({"not-mean"}, "0.weight"),
    "MeetsInPart": ({"weights-apart", "not-mean"}, "4.bias"),
    "NeverMeets": ({"no-exchange"}, None),
}
"""Strategies of support/lossy_proofs.py: what is found of each, and the parameter that is named."""
RIGHT = ("HoldsBack", "Meets")
OWN = {name: case(f"{HERE}:{name}", powersgd_start_step=2) for name in (*RIGHT, "EndsApart", *FAULTS)}
CASES: dict[str, CellSettings] = {**{name: case(name) for name in LOSSY}, **OWN}
STEPS = 3


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
def prove(take: Callable[..., list[Any]]) -> Callable[[str], Proof]:
    def prove(name: str) -> Proof:
        first, *_ = (RankProof.model_validate(each["proof"]) for each in take(name, op="steps", count=STEPS))
        assert first.proof is not None
        return first.proof

    return prove


@pytest.fixture(scope="module")
def check(take: Callable[..., list[Any]]) -> Callable[[str], list[RankCheck]]:
    return lambda name: [RankCheck.model_validate(each["check"]) for each in take(name, op="verify", count=1)]


def of(losses: Losses | None) -> Losses:
    assert losses is not None
    return losses


def test_every_lossy_strategy_that_is_registered_is_proved() -> None:
    assert {name for name, each in STRATEGIES.items() if not each.traits.exact} >= set(LOSSY)


@pytest.mark.parametrize("name", LOSSY)
def test_what_comes_with_worldsize_keeps_what_it_says(prove: Callable[[str], Proof], name: str) -> None:
    proof = prove(name)
    losses = of(proof.losses)
    assert losses.faults == []
    assert (proof.ranks, proof.gradients, proof.weights, proof.largest_gradient) == (None, None, None, None)
    assert losses.steps == proof.steps == proof.compared_steps >= STEPS
    assert proof.largest_weight is not None
    assert proof.largest_weight > 1e-9, "it is lossy: its weights are not those of the reference"


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_step_loses_something_and_no_more_than_the_traits_say(prove: Callable[[str], Proof], name: str) -> None:
    losses, traits = of(prove(name).losses), TRAITS[name]
    assert losses.step_error is not None
    assert losses.sum_error is not None
    assert min(losses.step_error, losses.sum_error) > 1e-6
    assert (losses.step_allowed is None) == (traits.step_error is None)
    assert (losses.feedback_error is None) != traits.feedback


@pytest.mark.parametrize("name", LOSSY)
def test_the_short_proof_finds_nothing_wrong_either(check: Callable[[str], list[RankCheck]], name: str) -> None:
    first, second = check(name)
    assert of(first.losses) == of(second.losses), "the ranks sum up what all of them have found"
    assert (of(first.losses).faults, first.apart, first.gradients, first.left_out) == ([], None, None, None)


def test_feedback_and_averaged_weights_of_the_users_own_hold(prove: Callable[[str], Proof]) -> None:
    losses = of(prove("HoldsBack").losses)
    assert losses.faults == []
    assert losses.feedback_error is not None
    assert losses.sum_error is not None
    assert losses.feedback_error < 1e-9 < 1e-3 < losses.sum_error
    met = of(prove("Meets").losses)
    assert (met.faults, met.exchanges, met.step_error) == ([], 1, None)


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_by_both_proofs(
    prove: Callable[[str], Proof], check: Callable[[str], list[RankCheck]], name: str
) -> None:
    kinds, parameter = FAULTS[name]
    for losses in (prove(name).losses, *(rank.losses for rank in check(name))):
        found = {fault.kind: fault for fault in of(losses).faults}
        assert found.keys() == kinds
        assert parameter is None or parameter in {fault.parameter for fault in found.values()}


def test_a_step_that_forgets_to_divide_is_off_by_the_gradient_itself(prove: Callable[[str], Proof]) -> None:
    losses = of(prove("ForgetsToDivide").losses)
    assert losses.step_error == pytest.approx(1, abs=0.05)


def test_ranks_that_end_with_other_weights_are_found(prove: Callable[[str], Proof]) -> None:
    proof = prove("EndsApart")
    assert proof.ranks is not None
    assert (proof.ranks.step, proof.ranks.parameter) == (0, "1.0.weight")
