"""One value per block of a cell: step times as they are, over a baseline cell's, over the short computation's.

Two runs were not timed in turn. That both have a session 0 and a block 3 says nothing: their blocks are resampled apart
from each other, never paired.
"""

from collections.abc import Callable

import numpy as np

from worldsize.analysis.levels import ratio_estimate, ratio_value
from worldsize.analysis.statistics import BlockKey, Blocks
from worldsize.results.baseline_records import StoredBlock, StoredCell
from worldsize.results.records import Estimate

MOST_VALUES = 1_000_000
"""Most values that stand for a cell's steps; a damaged baseline may name any number of them."""


def unpaired_ratio(numerator: Blocks, denominator: Blocks) -> Estimate:
    """Ratio of two cells of different runs with a 95 % interval (method.md §11).

    The sessions of one side are numbered below 0, so that no block of it meets one of the other. One block on
    either side has no interval. Raises ValueError without samples or with a sample that is not above 0.
    """
    apart = {(-1 - session, block): values for (session, block), values in numerator.items()}
    ratio = ratio_estimate(apart, denominator)
    assert not ratio.paired, "blocks of two runs have nothing to do with each other"
    return ratio.estimate


def blocks_of(cell: StoredCell, value: Callable[[StoredBlock], float | None]) -> Blocks:
    """One value per block of a cell; empty if any is absent or not above 0, for such have no ratio."""
    found = {(block.session, block.block): value(block) for block in cell.blocks}
    if any(each is None or each <= 0 for each in found.values()):
        return {}
    return {key: np.array([each], dtype=np.float64) for key, each in found.items()}


def steps_of(cell: StoredCell) -> dict[BlockKey, int]:
    """Timed steps of each block of a cell."""
    return {(block.session, block.block): block.steps for block in cell.blocks}


def by_steps(blocks: Blocks, cell: StoredCell) -> Blocks:
    """One value per step in place of one per block: each block of a cell counts by its steps (method.md §11).

    Blocks stay the unit of resampling; a single one is returned as it is.
    """
    if len(blocks) < 2:
        return blocks
    steps = steps_of(cell)
    each = max(1, -(-sum(steps.values()) // MOST_VALUES))
    return {key: np.repeat(values, max(1, steps[key] // each)) for key, values in blocks.items()}


def step_blocks(cell: StoredCell) -> Blocks:
    """The mean step time of each block in seconds."""
    return blocks_of(cell, lambda block: block.step_s)


def relative_blocks(cell: StoredCell, baseline: StoredCell) -> Blocks:
    """Step time ÷ that of the baseline cell of the same run, of each block that both have (method.md §8)."""
    return _quotients(step_blocks(cell), step_blocks(baseline))


def reference_blocks(cell: StoredCell) -> Blocks:
    """The mean time of the short computation beside the steps of each block in seconds; empty if one has none."""
    return blocks_of(cell, lambda block: block.reference_s)


def normalised_blocks(cell: StoredCell) -> Blocks:
    """Step time ÷ that of the short computation beside the steps of the same block (method.md §11)."""
    return _quotients(step_blocks(cell), reference_blocks(cell))


def _quotients(top: Blocks, bottom: Blocks) -> Blocks:
    return {key: top[key] / bottom[key] for key in top.keys() & bottom.keys()}


def speedup(cell: StoredCell, baseline: StoredCell) -> float | None:
    """The speed-up of a cell within its run, as its report has it (method.md §6); None without a common block."""
    top, bottom = (by_steps(step_blocks(each), each) for each in (baseline, cell))
    if not top.keys() & bottom.keys():
        return None
    return cell.global_batch / baseline.global_batch * ratio_value(top, bottom)
