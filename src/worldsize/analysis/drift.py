"""Drift of the machine from block to block, and what goes with it (method.md §8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import percent_text
from worldsize.analysis.statistics import SEED, Floats
from worldsize.results.disturbed import SLOW
from worldsize.results.records import WarningRecord
from worldsize.results.step_records import BlockConditions

BOUND = 0.15
"""Spread of a cell's blocks, relative, above which its machine is said to drift."""
MIN_BLOCKS = 5
SHUFFLES = 200
"""How often the steps of a cell are dealt anew over its blocks, to see how much blocks differ by chance."""
CHANCE = 0.99
"""Quantile of those variances between blocks that the true one must exceed."""
NOTABLE_CORES = 0.1
"""More cores for others in the slow blocks than in the quick ones: enough to name them as the cause."""
SHOWN = 4
"""Cells that the warning `disturbed` names."""
BUSY_CORES = 0.3
"""Cores that others use in quick and slow blocks alike, from which on they are named."""
SURE = 2.5
"""Standard errors by which a difference must exceed 0 before it is named as a cause."""
NOTABLE_FREQUENCY = 0.03
"""Relative loss of clock frequency that is enough to name it."""


MORE_OR_LESS = ("others_cores", "stolen_cores", "frequency_hz")


@dataclass(frozen=True)
class Block:
    """One block of a cell: its step time as a multiple of the cell's median block, and what else went on."""

    relative: float
    conditions: BlockConditions | None
    usual: dict[str, float]
    """Medians of the conditions over the blocks of its cell: some cells are busier than others by themselves."""


def spread(blocks: Sequence[Floats]) -> float | None:
    """Largest − smallest median of some blocks ÷ their median, without the tenth at either end.

    At least one block is left out at either end; None with fewer than MIN_BLOCKS.
    """
    count = len(blocks)
    if count < MIN_BLOCKS:
        return None
    medians = np.sort([float(np.median(block)) for block in blocks])
    cut = max(1, count // 10)
    return float((medians[count - cut - 1] - medians[cut]) / np.median(medians))


def drifts(blocks: Sequence[Floats]) -> bool:
    """Whether blocks are further apart than BOUND, and than steps that have nothing to do with each other would be."""
    found = spread(blocks)
    if found is None or found <= BOUND:
        return False
    steps, ends = np.log(np.concatenate(blocks)), np.cumsum([len(block) for block in blocks])[:-1]

    def between(dealt: Floats) -> float:
        return float(np.var([block.mean() for block in np.split(dealt, ends)]))

    generator = np.random.default_rng(SEED)
    chance = [between(generator.permutation(steps)) for _ in range(SHUFFLES)]
    return between(steps) > float(np.quantile(chance, CHANCE))


def drift_warning(cells: Sequence[CellAnalysis]) -> WarningRecord | None:
    """The warning `drift` with its likely cause, if the blocks of a cell are further apart than they may be."""
    # Where batches grow or shrink it is not the machine that drifts.
    measured = {cell.id: list(cell.blocks.values()) for cell in cells if not cell.batches_change}
    spreads = {name: width for name, blocks in measured.items() if (width := spread(blocks)) is not None}
    noisy = {name: spreads[name] for name in spreads if drifts(measured[name])}
    if not noisy:
        return None
    worst = max(noisy, key=lambda name: noisy[name])
    message = (
        f"the machine drifted: blocks of {len(noisy)} of {len(spreads)} cells are more than {percent_text(BOUND)} "
        f"apart ({worst}: {percent_text(noisy[worst])}).\n"
        f"{cause([block for cell in cells for block in blocks_of(cell)])} "
        "Most of the drift cancels in ratios of cells timed in turn; their intervals are wider."
    )
    return WarningRecord(code="drift", message=message)


def disturbed_warning(cells: Sequence[CellAnalysis]) -> WarningRecord | None:
    """Return the warning `disturbed`: the share of each cell's timed steps that were, and what will have done it."""
    shares = {
        cell.id: cell.summary.disturbed_steps / cell.summary.timed_steps
        for cell in cells
        if cell.summary and cell.summary.disturbed_steps
    }
    if not shares:
        return None
    most = sorted(shares, key=lambda name: -shares[name])
    named = ", ".join(f"{percent_text(shares[name])} of {name}" for name in most[:SHOWN])
    more = f" and less of {len(most) - SHOWN} more cells" if len(most) > SHOWN else ""
    found = [(each, cell) for cell in cells if cell.record for each in cell.record.conditions]
    others = [each.others_cores for each, cell in found if (each.session, each.block) in cell.disturbed]
    busy = float(np.mean(others)) if others else 0.0
    who = (
        f"Other processes used {busy:.2f} cores in their blocks: end them."
        if busy >= NOTABLE_CORES
        else "No other process here used them: likely threads of the training itself or, on a virtual machine, another "
        "guest of its host."
    )
    message = (
        f"Something beside the training's own steps used the cores: a short computation took more than {SLOW:g} times "
        f"as long as usual beside {named}{more} (shares of timed steps, which all count). {who}"
    )
    return WarningRecord(code="disturbed", message=message)


def why_apart(cells: Sequence[CellAnalysis]) -> str:
    """Why blocks are apart: batches that grow or shrink, else what was different in the slow ones."""
    changing = next((cell for cell in cells if cell.batches_change), None)
    if changing is None or changing.batches is None:
        return cause([block for cell in cells for block in blocks_of(cell)])
    first, last = changing.batches.first, changing.batches.last
    return f"Batches of {changing.id} went from {first:,.4g} to {last:,.4g} samples, so its blocks do unlike work."


def cause(blocks: Sequence[Block]) -> str:
    """What was different in the slowest quarter of all blocks from the quickest quarter, in a sentence."""
    known = sorted((block for block in blocks if block.conditions is not None), key=lambda block: block.relative)
    quarter = len(known) // 4
    if quarter < 2:
        return "Its cause is not known: too few blocks say what else went on."
    quick, slow = known[:quarter], known[-quarter:]
    others, stolen = _more(quick, slow, "others_cores"), _more(quick, slow, "stolen_cores")
    if others >= NOTABLE_CORES and others >= stolen:
        return (
            f"Likely other processes: they used {_cores(slow):.2f} cores in the slow blocks and "
            f"{_cores(quick):.2f} in the quick ones. End them, or measure when the machine is quiet."
        )
    if stolen >= NOTABLE_CORES:
        return (
            f"Likely other virtual machines: the hypervisor gave them {_mean(slow, 'stolen_cores'):.2f} cores in the "
            f"slow blocks and {_mean(quick, 'stolen_cores'):.2f} in the quick ones."
        )
    if all(block.conditions and block.conditions.frequency_hz for block in known):
        usual = _mean(quick, "frequency_hz")
        if -_more(quick, slow, "frequency_hz") > NOTABLE_FREQUENCY * usual:
            return (
                f"Likely heat or a power limit: at the end of the slow blocks the cores ran at "
                f"{_mean(slow, 'frequency_hz') / 1e9:.2f} GHz, of the quick ones at {usual / 1e9:.2f} GHz."
            )
    busy = _mean(known, "others_cores")
    if busy >= BUSY_CORES:
        return f"Other processes used {busy:.2f} cores all the while. End them, or measure when the machine is quiet."
    return (
        "No cause is visible from inside this machine (no other process, no stolen time, no slower clock): likely "
        "shared caches, memory or cores."
    )


def _mean(blocks: Sequence[Block], name: str) -> float:
    return float(np.mean([getattr(block.conditions, name) for block in blocks]))


def _cores(blocks: Sequence[Block]) -> float:
    """Cores that others used, as it is said: a difference of two clocks may come out a little below 0, no use can."""
    return max(0.0, _mean(blocks, "others_cores"))


def _more(quick: Sequence[Block], slow: Sequence[Block], name: str) -> float:
    """How much more of something the slow blocks had than is usual for their cells; 0 if that is not significant."""
    few, many = (
        np.array([getattr(block.conditions, name) - block.usual[name] for block in blocks]) for blocks in (quick, slow)
    )
    difference = float(many.mean() - few.mean())
    error = float(np.sqrt(few.var(ddof=1) / few.size + many.var(ddof=1) / many.size))
    return difference if abs(difference) > SURE * error else 0.0


def blocks_of(cell: CellAnalysis) -> list[Block]:
    """The blocks of a cell; none of one without samples."""
    if cell.record is None or not cell.blocks:
        return []
    seen = {(each.session, each.block): each for each in cell.record.conditions}
    usual = {name: _median([getattr(each, name) for each in seen.values()]) for name in MORE_OR_LESS}
    medians = {key: float(np.median(block)) for key, block in cell.blocks.items()}
    middle = float(np.median(list(medians.values())))
    return [Block(median / middle, seen.get(key), usual) for key, median in medians.items()]


def _median(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else 0.0
