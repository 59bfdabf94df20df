"""What the traces of a profile say of a cell, in a sentence: they are read for the person who would have to (§12).

Each sentence begins with a blank and is empty where there is no trace, or nothing in it stands out.
"""

from collections.abc import Collection

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.operators import OUTSIDE, MoreInTrace, largest, more_in_trace

OUTSIDE_IS = " What runs outside of operators is Python, a sleep, or waiting."


def on_slow_ranks(cell: CellAnalysis, slow: Collection[int], more_s: float) -> str:
    """Which operators take `more_s` seconds per step longer on the first of the slow ranks than on the others."""
    ranks = [each for each in (cell.profile.ranks if cell.profile else ()) if each.operators]
    own = next((each for each in ranks if each.rank in slow), None)
    others = [each.operators for each in ranks if each.rank not in slow]
    found = more_in_trace(own.operators, others, more_s) if own else None
    return f" In the trace of rank {own.rank}, more than on the others: {_told(found)}" if own and found else ""


def beside(cell: CellAnalysis, origin: CellAnalysis, more_s: float) -> str:
    """Which operators take longer in a cell than in another one, which is one of its workers alone."""
    ranks = [each.operators for each in (cell.profile.ranks if cell.profile else ()) if each.operators]
    alone = [each.operators for each in (origin.profile.ranks if origin.profile else ()) if each.operators]
    slowest = max(ranks, key=lambda each: sum(s for name, s in each.items() if name != OUTSIDE), default=None)
    found = more_in_trace(slowest, alone, more_s) if slowest else None
    return f" In the traces, more than in {origin.id}: {_told(found)}" if found else ""


def longest(cell: CellAnalysis) -> str:
    """The operators that take most of the computing of rank 0."""
    first = next((each.operators for each in (cell.profile.ranks if cell.profile else ()) if each.operators), None)
    return f" Most of it, in the trace: {largest(first).text}." if first else ""


def _told(found: MoreInTrace) -> str:
    return f"{found.text}.{OUTSIDE_IS if found.outside else ''}"
