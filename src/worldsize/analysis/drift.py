"""Drift of the machine from block to block, and what goes with it (method.md §8)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import percent_text
from worldsize.results.records import BlockConditions, WarningRecord

BOUND = 0.15
"""Spread of a cell's blocks, relative, above which its machine is said to drift."""
MIN_BLOCKS = 5
NOTABLE_CORES = 0.1
"""More cores for others in the slow blocks than in the quick ones: enough to name them as the cause."""
NOTABLE_FREQUENCY = 0.03
"""Relative loss of clock frequency that is enough to name it."""


@dataclass(frozen=True)
class Block:
    """One block of a cell: its step time as a multiple of the cell's median block, and what else went on."""

    relative: float
    conditions: BlockConditions | None


def spread(cell: CellAnalysis) -> float | None:
    """Largest − smallest of a cell's block medians ÷ their median, without the tenth at either end.

    At least one block is left out at either end; None with fewer than MIN_BLOCKS.
    """
    count = len(cell.blocks)
    if count < MIN_BLOCKS:
        return None
    medians = np.sort([float(np.median(block)) for block in cell.blocks.values()])
    cut = max(1, count // 10)
    return float((medians[count - cut - 1] - medians[cut]) / np.median(medians))


def drift_warning(cells: Sequence[CellAnalysis]) -> WarningRecord | None:
    """The warning `drift` with its likely cause, if the blocks of a cell are further apart than the bound."""
    spreads = {cell.id: width for cell in cells if (width := spread(cell)) is not None}
    if not spreads or max(spreads.values()) <= BOUND:
        return None
    worst = max(spreads, key=lambda name: spreads[name])
    noisy = sum(width > BOUND for width in spreads.values())
    message = (
        f"the machine drifted: blocks of {noisy} of {len(spreads)} cells are more than {percent_text(BOUND)} apart "
        f"({worst}: {percent_text(spreads[worst])})\n"
        f"{cause([block for cell in cells for block in _blocks(cell)])} "
        "Ratios are taken within a block: the drift widens their intervals, it does not shift them."
    )
    return WarningRecord(code="drift", message=message)


def cause(blocks: Sequence[Block]) -> str:
    """What was different in the slowest quarter of all blocks from the quickest quarter, in a sentence."""
    known = sorted((block for block in blocks if block.conditions is not None), key=lambda block: block.relative)
    quarter = len(known) // 4
    if quarter == 0:
        return "Its cause is not known: too few blocks say what else went on."
    quick, slow = known[:quarter], known[-quarter:]
    others, stolen = ((_mean(quick, name), _mean(slow, name)) for name in ("others_cores", "stolen_cores"))
    if others[1] - others[0] >= NOTABLE_CORES and others[1] - others[0] >= stolen[1] - stolen[0]:
        return (
            f"Likely other processes: they used {others[1]:.2f} cores in the slow blocks and {others[0]:.2f} in the "
            "quick ones. End them, or measure again when the machine is quiet."
        )
    if stolen[1] - stolen[0] >= NOTABLE_CORES:
        return (
            f"Likely other virtual machines: the hypervisor gave them {stolen[1]:.2f} cores in the slow blocks and "
            f"{stolen[0]:.2f} in the quick ones."
        )
    clocks = [block.conditions.frequency_hz for block in known if block.conditions and block.conditions.frequency_hz]
    if len(clocks) == len(known):
        frequencies = _mean(quick, "frequency_hz"), _mean(slow, "frequency_hz")
        if frequencies[1] < (1 - NOTABLE_FREQUENCY) * frequencies[0]:
            return (
                f"Likely heat or a power limit: the cores ran at {frequencies[1] / 1e9:.2f} GHz in the slow blocks "
                f"and at {frequencies[0] / 1e9:.2f} GHz in the quick ones."
            )
    return (
        "Nothing that this machine can see goes with it (no other process, no stolen time, no slower clock): likely "
        "caches, memory or cores that are shared with others outside of it."
    )


def _mean(blocks: Sequence[Block], name: str) -> float:
    return float(np.mean([getattr(block.conditions, name) for block in blocks]))


def _blocks(cell: CellAnalysis) -> list[Block]:
    if cell.record is None or not cell.blocks:
        return []
    seen = {(each.session, each.block): each for each in cell.record.conditions}
    medians = {key: float(np.median(block)) for key, block in cell.blocks.items()}
    middle = float(np.median(list(medians.values())))
    return [Block(median / middle, seen.get(key)) for key, median in medians.items()]
