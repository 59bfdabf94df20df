"""A study as the rules of the advice see it: what several of them need, found once."""

from collections import Counter
from functools import cached_property

import polars as pl

from worldsize.analysis.advice.exchange import Exchange
from worldsize.analysis.by_block import BLOCK
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.headline import Headline, fastest_worker, headline
from worldsize.analysis.study import StudyAnalysis
from worldsize.config import StudySettings
from worldsize.results.folder import Cell


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
        self._exchanges: dict[str, Exchange] = {}

    @property
    def settings(self) -> StudySettings:
        """What the study was asked for."""
        return self.analysis.record.asked

    @property
    def trains(self) -> bool:
        """Whether worldsize trained, so that one of its commands can try something else."""
        return self.analysis.record.settings is not None

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
        return [cell for cell in self.analysis.cells if cell.summary and (allowed or not cell.oversubscribed)]

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

    def exchange(self, cell: CellAnalysis) -> Exchange:
        """The exchange of gradients of a cell of several workers."""
        if cell.id not in self._exchanges:
            link = self.analysis.links.get(cell.world_size)
            self._exchanges[cell.id] = Exchange(cell, self.blocks(cell), link)
        return self._exchanges[cell.id]
