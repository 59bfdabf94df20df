"""What the traces of a profile say of a cell, in a sentence: they are read for the person who would have to (§12).

Each sentence begins with a blank, and is empty where no trace was read or nothing in it stands out.
"""

from collections.abc import Collection

from worldsize.analysis.advice.rule import Seen, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.operators import OUTSIDE, Longest, largest, more_in_trace

OUTSIDE_IS = " What runs outside of operators is Python, a sleep, or waiting."


def read(cell: CellAnalysis) -> dict[int, dict[str, float]]:
    """Seconds per step of each operator, by rank; none of a GPU, nor where one process drives several workers."""
    if cell.profile is None or ranks_of(cell) != cell.world_size:
        return {}
    return {each.rank: each.operators for each in cell.profile.ranks if each.operators}


def can_be_traced(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether a command can make a trace that is read here, and none has; a script cannot be traced."""
    placement = cell.record.placement if cell.record else None
    on_cpu = placement is not None and placement.device == "cpu"
    return seen.trains and on_cpu and ranks_of(cell) == cell.world_size and cell.profile is None


def on_slow_ranks(cell: CellAnalysis, slow: Collection[int], more_s: float) -> str:
    """Which operators take `more_s` seconds per step longer on the first of the slow ranks than on the others."""
    ranks = read(cell)
    own = next((rank for rank in slow if rank in ranks), None)
    if own is None:
        return ""
    found = more_in_trace(ranks[own], [each for rank, each in ranks.items() if rank not in slow], more_s)
    return f" In the trace of rank {own}, more than on the others: {_longest_text(found)}" if found else ""


def beside(cell: CellAnalysis, origin: CellAnalysis, more_s: float, but: Collection[int] = ()) -> str:
    """Which operators take longer in a cell than in another one of one worker; the ranks `but` are left out."""
    ranks, alone = [each for rank, each in read(cell).items() if rank not in but], [*read(origin).values()]
    slowest = max(ranks, key=lambda each: sum(s for name, s in each.items() if name != OUTSIDE), default=None)
    found = more_in_trace(slowest, alone, more_s) if slowest else None
    return f" In the traces, more than in {origin.id}: {_longest_text(found)}" if found else ""


def longest(cell: CellAnalysis) -> str:
    """The operators that take most of the computing of the first rank."""
    first = next(iter(read(cell).values()), None)
    found = largest(first) if first else None
    return f" Most of it, in the trace: {found.text}." if found else ""


def _longest_text(found: Longest) -> str:
    return f"{found.text}.{OUTSIDE_IS if found.outside else ''}"
