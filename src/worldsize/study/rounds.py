"""Which cells of a study are held against each other."""

import random
from collections.abc import Collection, Iterator, Sequence
from math import ceil

from worldsize.analysis.baseline import any_baselines, with_numbers
from worldsize.study.plan import PlannedCell

MOST_READ = 4
"""Global batches that are read to compare them with those of other world sizes, at most."""


def baseline_of(cell: PlannedCell, cells: Sequence[PlannedCell], failed: Collection[str] = ()) -> PlannedCell | None:
    """The cell of one worker that a cell is compared with: same local batch, else same global one (method.md §6).

    Cells that have `failed` (ids) have no numbers, as in the report.
    """
    return with_numbers(cell, any_baselines(cell, cells), lambda other: other.id not in failed)


def batches_to_read(cell: PlannedCell, cells: Sequence[PlannedCell]) -> int:
    """Global batches that a cell reads in its short proof: as many samples as the largest world with the same b."""
    largest = max(c.settings.world_size for c in cells if c.settings.batch_size == cell.settings.batch_size)
    return min(ceil(largest / cell.settings.world_size), MOST_READ)


def in_turn(
    cells: Sequence[PlannedCell], seed: int, session: int, block: int, *, drawn: bool = True
) -> Iterator[PlannedCell]:
    """The cells in the order of one round, which is `drawn` anew for each, and those that are added meanwhile (§8).

    So none always follows the same other one. The order is the same for the same study, session and round, on every
    rank that others have started.
    """
    known = len(cells)
    yield from random.Random(f"{seed} {session} {block}").sample(list(cells), known) if drawn else list(cells)
    while known < len(cells):
        yield cells[known]
        known += 1
