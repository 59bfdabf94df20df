"""Whether all cells of a study read the same data (method.md §10)."""

from collections.abc import Sequence

from worldsize.analysis.cells import CellAnalysis
from worldsize.results.check_records import DIGEST_LENGTH
from worldsize.results.records import WarningRecord


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
