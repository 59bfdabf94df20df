"""Of a run: step times as they are, and relative to a cell of one worker; of two runs: ratios (method.md §11).

Two runs were not timed in turn. That both have a session 0 and a block 3 says nothing: their blocks are resampled
apart from each other, never paired.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from worldsize.analysis.baseline import any_baselines
from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.statistics import Blocks
from worldsize.results.baseline_records import StoredBlock, StoredCell, StoredRun
from worldsize.results.records import Estimate


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


def step_blocks(cell: StoredCell) -> Blocks:
    """The mean step time of each block in seconds."""
    return blocks_of(cell, lambda block: block.step_s)


def relative_blocks(cell: StoredCell, baseline: StoredCell) -> Blocks:
    """Step time ÷ that of the baseline cell of the same run, of each block that both have (method.md §8)."""
    top, bottom = step_blocks(cell), step_blocks(baseline)
    return {key: top[key] / bottom[key] for key in top.keys() & bottom.keys()}


def speedup(cell: StoredCell, baseline: StoredCell) -> float | None:
    """The speed-up of a cell within its run, as its report has it (method.md §6); None without a common block."""
    top, bottom = step_blocks(baseline), step_blocks(cell)
    if not top.keys() & bottom.keys():
        return None
    return cell.global_batch / baseline.global_batch * ratio_estimate(top, bottom).estimate.value


def common_baseline(cell_id: str, runs: Sequence[StoredRun]) -> str | None:
    """The cell of one worker that a cell can be held against in all these runs; None if there is none.

    With the same local batch, else with the same global one; without a wrapper, else in the same strategy. As a
    speed-up, it is withheld where threads differ or there are more of them than cores (method.md §6, §8).
    """
    first, *others = [_baselines(cell_id, run) for run in runs]
    return next((name for name in first if all(name in each for each in others)), None)


def _baselines(cell_id: str, run: StoredRun) -> list[str]:
    """The cells of a run that may be the baseline, best first."""
    cell = next(each for each in run.cells if each.id == cell_id)
    crowded = not run.asked.allow_oversubscribed

    def fits(other: StoredCell) -> bool:
        if not relative_blocks(cell, other) or (crowded and _oversubscribed((cell, other))):
            return False
        return _threads(cell) == _threads(other)

    return [each.id for each in any_baselines(cell, run.cells) if fits(each)]


def _oversubscribed(cells: Iterable[StoredCell]) -> bool:
    return any(cell.placement is not None and cell.placement.oversubscribed for cell in cells)


def _threads(cell: StoredCell) -> int | None:
    return cell.placement.threads_per_worker if cell.placement else None
