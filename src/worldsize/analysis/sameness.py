"""Whether the cells of a study train as the reference does, and on the same data (method.md §10)."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from worldsize.analysis.cells import CellAnalysis
from worldsize.results.check_records import DIGEST_LENGTH, Fault, FaultKind, Losses, RankCheck, VerifyRecord
from worldsize.results.records import WarningRecord

T = TypeVar("T")

FAULTS: dict[FaultKind, str] = {
    "error": "the averaged gradient of {step} is off by {relative} of its size",
    "inexact": "{step} is one of the exact first ones, and {parameter} is off by {relative}",
    "gradients-apart": "the averaged gradient of {parameter} is not the same on all ranks in {step}",
    "lost": "the gradient of {parameter} arrives as zeros",
    "feedback": "{parameter} loses {relative} of its sum that error feedback does not hold back",
    "no-feedback": "it claims error feedback, and does not say what it holds back (Strategy.held_back)",
    "not-own": "the gradient of {parameter} is not the rank's own in {step}: it differs by {relative}",
    "no-exchange": "weights were never averaged, and ranks drift apart",
    "weights-apart": "{parameter} is not the same on all ranks after weights were averaged in {step}",
    "not-mean": "{parameter} is not the mean of the ranks' weights after {step}: it differs by {relative}",
}


def fault_texts(losses: Losses | None) -> list[str]:
    """What a lossy synchronisation does that it must not, a sentence each."""
    return [_fault_text(fault) for fault in losses.faults] if losses else []


def _fault_text(fault: Fault) -> str:
    size = "no finite number" if fault.relative is None else f"{fault.relative:.2g}"
    said = FAULTS[fault.kind].format(step=f"step {fault.step}", parameter=fault.parameter, relative=size)
    return said if fault.allowed is None else f"{said} (allowed: {fault.allowed:.2g})"


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
        losses=checks[0].losses,
        samples="".join(in_epoch_order([check.samples for check in checks])),
    )


def not_the_reference(cell: str, found: VerifyRecord) -> list[WarningRecord]:
    """The warning of a cell that does not train as the reference does; none for one that does."""
    faults = []
    if found.gradients is not None:
        far = found.gradients.relative
        size = "is not finite" if far is None else f"differs by {far:.2g} of its size (allowed: {found.tolerance:.0e})"
        where = f"{found.gradients.parameter} on rank {found.rank}"
        faults.append(f"the gradient of {where} is not the mean over the workers: it {size}")
    if found.apart is not None:
        faults.append(f"the ranks do not begin with the same weights: {found.apart} is the first that differs")
    lost = fault_texts(found.losses)
    if not faults + lost:
        return []
    reason = "does not train as the reference does" if faults else "does not keep what its strategy says of it"
    message = f"{'; '.join(faults + lost)}. {cell} {reason}, and its speed-up means nothing."
    return [WarningRecord(code="not-the-reference", message=message)]


def samples_of(cell: CellAnalysis) -> list[str]:
    """Digests of the first samples of epoch 0 that a cell read, in the order of the epoch."""
    verified = cell.record.verified if cell.record else None
    text = verified.samples if verified else ""
    return [text[begin : begin + DIGEST_LENGTH] for begin in range(0, len(text), DIGEST_LENGTH)]


def first_unlike(mine: Sequence[str], theirs: Sequence[str]) -> int | None:
    """The first place at which two sequences of digests differ; None as far as both go."""
    return next((place for place, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), None)


def first_other_sample(cell: CellAnalysis, other: CellAnalysis) -> int | None:
    """The first place in the epoch at which two cells read different samples; None as far as both have read."""
    return first_unlike(samples_of(cell), samples_of(other))


def data_reader(cells: Sequence[CellAnalysis]) -> CellAnalysis | None:
    """The cell that the others are held against: the first, and thus the smallest world, that has read anything."""
    return next((cell for cell in cells if samples_of(cell)), None)


def data_warning(cells: Sequence[CellAnalysis]) -> WarningRecord | None:
    """The warning `data-differ`, if cells read other samples, in another order, or augmented otherwise."""
    first = data_reader(cells)
    if first is None:
        return None
    found = {cell.id: place for cell in cells if (place := first_other_sample(cell, first)) is not None}
    if not found:
        return None
    places = ", ".join(f"{name} from sample {place} on" for name, place in found.items())
    message = (
        f"not all cells train on the same data: {places} does not read what {first.id} reads. The order and the "
        "augmentation of a sample must depend on the seed, the epoch and the sample alone; likely the data set draws "
        "its own random numbers or looks at its rank."
    )
    return WarningRecord(code="data-differ", message=message)
