"""The short proof of a cell, put together from what its ranks found (method.md §10)."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from worldsize.results.check_records import RankCheck, VerifyRecord
from worldsize.results.records import WarningRecord

T = TypeVar("T")


def in_epoch_order(of_ranks: Sequence[Sequence[T]]) -> Iterator[T]:
    """What ranks have read, step by step: in each the share of rank 0, then that of rank 1, and so on."""
    return (share for step in zip(*of_ranks, strict=True) for share in step)


def verdict_of(checks: Sequence[RankCheck]) -> VerifyRecord:
    """What the ranks of a cell found, as one; `checks` are in the order of the ranks."""
    compared = [check for check in checks if check.largest is not None]
    wrong = [(rank, check.gradients) for rank, check in enumerate(checks) if check.gradients is not None]
    rank, gradients = wrong[0] if wrong else (None, None)
    return VerifyRecord(
        tolerance=checks[0].tolerance,
        largest=max(check.largest or 0.0 for check in checks) if len(compared) == len(checks) else None,
        gradients=gradients,
        rank=rank,
        apart=checks[0].apart,
        left_out=checks[0].left_out,
        samples="".join(in_epoch_order([check.samples for check in checks])),
    )


def not_the_reference(cell: str, found: VerifyRecord) -> list[WarningRecord]:
    """The warning of a cell that does not train as the reference does; none for one that does."""
    told = []
    if found.gradients is not None:
        far = found.gradients.relative
        size = "is not finite" if far is None else f"differs by {far:.2g} of its size (allowed: {found.tolerance:.0e})"
        where = f"{found.gradients.parameter} on rank {found.rank}"
        told.append(f"the gradient of {where} is not the mean over the workers: it {size}")
    if found.apart is not None:
        told.append(f"the ranks do not begin with the same weights: {found.apart} is the first that differs")
    if not told:
        return []
    message = f"{'; '.join(told)}. {cell} does not train as the reference does, and its speed-up means nothing."
    return [WarningRecord(code="not-the-reference", message=message)]
