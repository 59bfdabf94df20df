"""What a rule of the advice is given, and what it gives: the study as rules see it, and advice before it is chosen.

Candidates come with the cell and the gain by which they are put in order, most worthwhile first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NotRequired, TypedDict, Unpack

import polars as pl

from worldsize.analysis.advice.finding import Advice, Evidence, Gain
from worldsize.analysis.advice.gains import EXPOSED, STEP, notable
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.advice.long_steps import Stall, only_in_long_steps, stall_of
from worldsize.analysis.advice.peers import SlowRanks, slow_ranks
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.headline import Headline, fastest_worker, headline
from worldsize.analysis.own_loops import Sends, sends_of
from worldsize.analysis.steps import BLOCK, STEPS, ratio_over
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import StudySettings
from worldsize.results.folder import Cell
from worldsize.traits import ALL_CORES

NAMED = 3
"""So many other cells with the same finding are named; the rest are counted."""


def ranks_of(cell: CellAnalysis) -> int:
    """Processes of a cell: each has step records of its own."""
    return cell.record.placement.processes if cell.record and cell.record.placement else cell.world_size


def on_one_host(cell: CellAnalysis) -> int:
    """Processes of a cell on the host that has most of them; all of them where their hosts are not known."""
    hosts = Counter(rank.host for rank in cell.record.ranks) if cell.record else Counter[str]()
    return max(hosts.values()) if hosts.total() == ranks_of(cell) else ranks_of(cell)


class Seen:
    """A study, the cell that matters most in it, and its cells block by block."""

    def __init__(self, analysis: StudyAnalysis) -> None:
        self.analysis = analysis
        self._blocks: dict[str, pl.DataFrame] = {}
        self._syncs: dict[str, GradientSync] = {}
        self._slow: dict[str, SlowRanks | None] = {}
        self._stalls: dict[str, Stall | None] = {}
        self._sends: dict[str, Sends | None] = {}

    @property
    def settings(self) -> StudySettings:
        """What the study was asked for."""
        return self.analysis.record.asked

    @property
    def trains(self) -> bool:
        """Whether worldsize trained, so that one of its commands can try something else."""
        return self.analysis.record.trains

    @property
    def headline(self) -> Headline | None:
        """The fastest configuration of several workers; None where there is none."""
        return headline(self.analysis)

    @cached_property
    def focus(self) -> CellAnalysis | None:
        """The cell that the advice is about in the first place: the one of the verdict."""
        return self.headline.fastest if self.headline else fastest_worker(self.analysis)

    @cached_property
    def cells(self) -> list[CellAnalysis]:
        """Cells with numbers that may be judged (method.md §8)."""
        allowed = self.settings.allow_oversubscribed
        cells = (cell for cell in self.analysis.cells if cell.label != ALL_CORES)  # a yardstick, and no way to train
        return [cell for cell in cells if cell.summary and (allowed or not cell.oversubscribed)]

    @property
    def several(self) -> list[CellAnalysis]:
        """Those with several workers."""
        return [cell for cell in self.cells if cell.world_size > 1]

    def find(self, strategy: str, world_size: int, batch_size: int) -> CellAnalysis | None:
        """The cell with these, if it has numbers."""
        wanted = (strategy, world_size, batch_size)
        return next((c for c in self.cells if (c.strategy, c.world_size, c.batch_size) == wanted), None)

    def raw(self, cell: CellAnalysis) -> Cell:
        """The samples of a cell."""
        return self.analysis.run.cells[cell.id]

    def blocks(self, cell: CellAnalysis) -> pl.DataFrame:
        """Means of a cell by session and block: parts of a step, and wait, transfer and bandwidth of its messages."""
        if cell.id not in self._blocks:
            found = cell.block_means
            if cell.communication is not None:
                found = found.join(cell.communication.blocks, on=BLOCK, how="left")
            self._blocks[cell.id] = found
        return self._blocks[cell.id]

    def gradient_sync(self, cell: CellAnalysis) -> GradientSync:
        """The gradient synchronisation of a cell of several workers."""
        if cell.id not in self._syncs:
            link = self.analysis.links.get(cell.world_size)
            self._syncs[cell.id] = GradientSync(cell, self.blocks(cell), link)
        return self._syncs[cell.id]

    def slow_ranks(self, cell: CellAnalysis) -> SlowRanks | None:
        """The ranks of a cell that significantly work longer than their peers; None where there are none."""
        if cell.id not in self._slow:
            found = slow_ranks(self.raw(cell), self.blocks(cell)) if ranks_of(cell) > 1 else None
            by_design = found is not None and found.ranks == (0,) and self.gradient_sync(cell).rooted
            self._slow[cell.id] = None if by_design else found  # a root has more to do
        return self._slow[cell.id]

    def sends(self, cell: CellAnalysis) -> Sends | None:
        """What a loop of the user's own sends under DDP; None of others."""
        if cell.id not in self._sends:
            self._sends[cell.id] = sends_of(self.raw(cell))
        return self._sends[cell.id]

    def stall(self, cell: CellAnalysis) -> Stall | None:
        """The long steps of a cell that cost something; None where there are none."""
        if cell.id not in self._stalls:
            self._stalls[cell.id] = stall_of(self.raw(cell), cell.summary)
        return self._stalls[cell.id]

    def stalled_ranks(self, cell: CellAnalysis) -> tuple[int, ...]:
        """The slow ranks of a cell, if what they work longer lies in its long steps; else none."""
        slow, stall = self.slow_ranks(cell), self.stall(cell)
        if slow is None or stall is None or not only_in_long_steps(self.raw(cell), slow, stall):
            return ()
        return slow.ranks

    def waits_only(self, cell: CellAnalysis) -> bool:
        """Whether all that is notable of its exposed communication can be waiting for its slow ranks, named already."""
        slow = self.slow_ranks(cell)
        if slow is None:
            return False
        waiting = 1 - len(slow.ranks) / ranks_of(cell)  # a mean over ranks: the slow ones do not wait
        left = pl.max_horizontal(EXPOSED - waiting * slow.more.value, pl.lit(0.0))
        return not notable(ratio_over(self.blocks(cell), left * STEPS, STEP * STEPS))


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
    leads: bool = False
    """Whether it explains most of what is lost, so that it goes before what may bring more."""
    follows: bool = False
    """Whether it only tells what comes of a limit that other advice names."""


class Parts(TypedDict):
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
    leads: bool = False,
    follows: bool = False,
    **parts: Unpack[Parts],
) -> Candidate:
    """What a rule found of a cell; `everywhere` where it concerns all of them, and the cell stands for them."""
    advice = Advice(
        code=code,
        cell_id=cell.id,
        finding=parts["finding"],
        evidence=tuple(parts["evidence"]),
        cause=parts["cause"],
        next_step=parts["next_step"],
        command=parts["command"],
        gain=parts.get("gain"),
    )
    return Candidate(advice, None if everywhere else cell, first, doubt, leads, follows)


def in_order(candidates: Sequence[Candidate], focus: CellAnalysis | None) -> tuple[Advice, ...]:
    """One advice per code, the most worthwhile first (docs/advice.md, "Order").

    First what keeps the study from an answer, then what concerns the focus (the cell of the verdict), then other
    cells; within each what explains most of the loss, then the largest gain, advice whose gain is not known, and last
    what only follows from other advice.
    """
    by_code: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_code.setdefault(candidate.advice.code, []).append(candidate)
    chosen = [_one_of(same, focus) for same in by_code.values()]
    chosen.sort(key=lambda each: (_place(each, focus), -_gain(each)))
    # What makes the other numbers doubtful is read before more of them.
    doubts = [each for each in chosen[1:] if each.doubt]
    return tuple(each.advice for each in [*chosen[:1], *doubts, *(c for c in chosen[1:] if not c.doubt)])


def _place(candidate: Candidate, focus: CellAnalysis | None) -> tuple[int, int]:
    concerns = candidate.cell is None or focus is None or candidate.cell is focus
    return 2 if not concerns else 0 if candidate.first else 1, candidate.follows - candidate.leads


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
    advice = replace(best.advice, evidence=(*best.advice.evidence, Evidence("Also in", names(others))))
    return replace(best, advice=advice)


def _nearness(cell: CellAnalysis | None, focus: CellAnalysis | None) -> tuple[bool, bool]:
    if cell is None or focus is None:
        return cell is None, False
    return cell is focus, (cell.world_size, cell.batch_size) == (focus.world_size, focus.batch_size)


def ranks_text(ranks: Sequence[int]) -> str:
    """`rank 1`, `ranks 2 and 3`, `ranks 4, 5, 6 and 7`."""
    *most, last = map(str, ranks)
    return f"ranks {', '.join(most)} and {last}" if most else f"rank {last}"


def names(ids: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    every = list(ids)
    more = len(every) - NAMED
    return ", ".join(every[:NAMED]) + (f" and {more} more" if more > 0 else "")
