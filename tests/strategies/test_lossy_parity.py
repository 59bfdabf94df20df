"""Every lossy strategy gives the mean of the ranks' own gradients, but for what its traits say (method.md §10)."""

import torch

from parity import Gradients, Outcome, Own
from parity_cases import IN_DOUBLE, IN_SINGLE, TOLERANCE, Case, case, distance, of, outcomes, sizes, workers

__all__ = ["case", "outcomes", "workers"]

CASES = [each for each in (*IN_DOUBLE, *IN_SINGLE) if not each.traits.exact]
SEVERAL = [each for each in IN_DOUBLE if not each.traits.exact]


def off(found: Gradients, wanted: Gradients) -> float:
    """The norm of the difference of all parameters together ÷ that of what is wanted."""
    difference = torch.stack([(a - b).norm() for a, b in zip(found, wanted, strict=True)]).norm()
    return float(difference / torch.stack([gradient.norm() for gradient in wanted]).norm())


def bound(case: Case, own: Own, *, first: bool) -> float:
    """What a step may be off: its share of the ranks' own gradients, which are larger than their mean.

    With feedback it also gives back what the step before has lost.
    """
    assert case.traits.step_error is not None
    ratio = own.norm / float(torch.stack([gradient.norm() for gradient in own.mean]).norm())
    assert ratio >= 1
    return case.traits.step_error * ratio * (2 if case.traits.feedback and not first else 1)


@of(CASES)
def test_a_lossy_step_is_off_by_no_more_than_the_traits_say(outcomes: list[Outcome], case: Case) -> None:
    """Held against the mean of the ranks' own gradients at the same weights, in each step.

    Where the traits have no bound for a step the sum over steps is bound (training/test_lossy_proofs.py).
    """
    each = [Own(**own) for own in outcomes[0].own[: case.steps]]
    for step, (found, own) in enumerate(zip(outcomes[0].steps, each, strict=True)):
        lost = off(found, own.mean)
        if step < case.exact_steps:
            assert lost < TOLERANCE
            continue
        assert lost > TOLERANCE  # or it is exact
        if case.traits.step_error is not None:
            assert lost <= bound(case, own, first=step == case.exact_steps)


@of(SEVERAL)
def test_without_exchange_a_lossy_one_leaves_each_rank_its_own(outcomes: list[Outcome], case: Case) -> None:
    for rank, outcome in enumerate(outcomes):
        assert distance(outcome.local, Own(**outcome.own[case.steps]).mine) < TOLERANCE
        assert off(outcome.local, outcomes[rank - 1].local) > 0.1


@of(SEVERAL)
def test_the_lossy_step_after_one_without_exchange_exchanges_again(outcomes: list[Outcome], case: Case) -> None:
    own = Own(**outcomes[0].own[case.steps + 1])
    for outcome in outcomes:
        assert all(torch.equal(a, b) for a, b in zip(outcome.again, outcomes[0].again, strict=True))
    if case.traits.step_error is not None:
        assert off(outcomes[0].again, own.mean) <= bound(case, own, first=False)


@of(CASES)
def test_all_ranks_have_the_same_weights(outcomes: list[Outcome]) -> None:
    """Each bit of them, and also in single precision."""
    assert len({outcome.weights for outcome in outcomes}) == 1


@of(SEVERAL)
def test_a_lossy_one_sends_buckets_beside_backward(outcomes: list[Outcome], case: Case) -> None:
    """How large they are is held against the rule in study/test_what_is_sent.py."""
    for outcome in outcomes:
        kinds = [(kind, blocking) for kind, _, blocking in outcome.messages]
        if "broadcast" in case.traits.collectives:
            assert outcome.messages[0] == ("broadcast", outcome.buffer_bytes, True)
            kinds = kinds[1:]
        assert {kind.replace("_", "-") for kind, _ in kinds} == {*case.traits.collectives} - {"broadcast"}
        assert not any(blocking for _, blocking in kinds)
        assert outcome.buckets > 1
        assert outcome.early > 0
        assert sum(size for kind, size, _ in outcome.messages if kind != "broadcast") < sum(sizes(outcome)) / 2
        assert outcome.messages == outcomes[0].messages
