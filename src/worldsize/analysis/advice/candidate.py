"""Advice before it is chosen: with the cell and the gain by which it is put in order, most worthwhile first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NotRequired, TypedDict, Unpack

from worldsize.analysis.advice.finding import Advice, Evidence, Gain
from worldsize.analysis.cells import CellAnalysis

NAMED = 3
"""So many other cells with the same finding are named; the rest are counted."""


@dataclass(frozen=True)
class Candidate:
    """What a rule found of one cell, or of the whole study."""

    advice: Advice
    cell: CellAnalysis | None = None
    """None for one that concerns all cells."""
    first: bool = False
    """Whether the study has no answer with 95 % confidence before this is mended, whatever may be gained elsewhere."""
    doubt: bool = False
    """Whether it tells how little the numbers are to be trusted."""


class Told(TypedDict):
    """What a rule says: the fields of an `Advice`."""

    finding: str
    evidence: Iterable[Evidence]
    cause: str
    next_step: str
    command: str | None
    gain: NotRequired[Gain | None]


def candidate(
    code: str,
    cell: CellAnalysis,
    *,
    everywhere: bool = False,
    first: bool = False,
    doubt: bool = False,
    **told: Unpack[Told],
) -> Candidate:
    """What a rule found of a cell; `everywhere` where it concerns all of them, and the cell stands for them."""
    advice = Advice(
        code=code,
        cell_id=cell.id,
        finding=told["finding"],
        evidence=tuple(told["evidence"]),
        cause=told["cause"],
        next_step=told["next_step"],
        command=told["command"],
        gain=told.get("gain"),
    )
    return Candidate(advice, None if everywhere else cell, first, doubt)


def in_order(candidates: Sequence[Candidate], focus: CellAnalysis | None) -> tuple[Advice, ...]:
    """One advice per code, the most worthwhile first (docs/advice.md, "Order").

    First what keeps the study from an answer, then what concerns the focus (the cell of the verdict), then other
    cells; within each the largest gain first, advice whose gain is not known last.
    """
    by_code: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_code.setdefault(candidate.advice.code, []).append(candidate)
    chosen = [_one_of(same, focus) for same in by_code.values()]
    chosen.sort(key=lambda each: (_place(each, focus), -_gain(each)))
    # What makes the other numbers doubtful is read before more of them.
    doubts = [each for each in chosen[1:] if each.doubt]
    return tuple(each.advice for each in [*chosen[:1], *doubts, *(c for c in chosen[1:] if not c.doubt)])


def _place(candidate: Candidate, focus: CellAnalysis | None) -> int:
    concerns = candidate.cell is None or focus is None or candidate.cell is focus
    return 2 if not concerns else 0 if candidate.first else 1


def _gain(candidate: Candidate) -> float:
    gain = candidate.advice.gain
    found = (gain.expected or gain.ratio) if gain else None
    return found.value if found else 1.0


def _one_of(same: Sequence[Candidate], focus: CellAnalysis | None) -> Candidate:
    """The one of the focus, else one with its world size and batch, else the one that promises most."""
    best = max(same, key=lambda each: (*_nearness(each.cell, focus), _gain(each)))
    others = [each.cell.id for each in same if each is not best and each.cell is not None]
    if not others:
        return best
    told = replace(best.advice, evidence=(*best.advice.evidence, Evidence("Also in", names(others))))
    return replace(best, advice=told)


def _nearness(cell: CellAnalysis | None, focus: CellAnalysis | None) -> tuple[bool, bool]:
    if cell is None or focus is None:
        return cell is None, False
    return cell is focus, (cell.world_size, cell.batch_size) == (focus.world_size, focus.batch_size)


def names(ids: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    every = list(ids)
    more = len(every) - NAMED
    return ", ".join(every[:NAMED]) + (f" and {more} more" if more > 0 else "")
