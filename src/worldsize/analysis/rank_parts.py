"""The parts of a step for each rank of a cell, or for those that tell what the others do (method.md §2)."""

from dataclasses import dataclass

import polars as pl

from worldsize.analysis.communication import Communication
from worldsize.analysis.parts import with_parts
from worldsize.analysis.timeline_step import drawn_ranks
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS

MOST_ROWS = 16


@dataclass(frozen=True)
class RankParts:
    """One rank: the mean of each part over its timed steps, in seconds."""

    rank: int
    role: str
    """`works longest`, `median`, `works least`, or nothing."""
    parts_s: dict[str, float]
    wait_s: float | None = None
    """Of its communication, until the last rank has issued a message; None where no message was seen."""
    transfer_s: float | None = None

    @property
    def step_s(self) -> float:
        """Its mean step."""
        return sum(self.parts_s.values())


@dataclass(frozen=True)
class CellRanks:
    """The ranks of a cell that are shown, in order."""

    cell_id: str
    ranks: tuple[RankParts, ...]
    of: int
    """How many ranks there are."""

    @property
    def chosen(self) -> bool:
        """Whether some ranks are left out."""
        return len(self.ranks) < self.of


def rank_parts(cell: Cell, sent: Communication | None = None) -> CellRanks | None:
    """The ranks of a cell with their parts; None for a cell of one process, or without a timed step.

    `sent` is its communication, if there is any: the wait and transfer of each rank.
    """
    means = cell.collect(
        with_parts(cell).filter("timed").group_by("rank").agg(pl.col("step_s", *PARTS).mean()).sort("rank")
    )
    if means.height < 2 or means["other_s"].has_nulls():
        return None
    order = means.sort(pl.col("step_s") - pl.col("exposed_sync_s"), "rank", descending=[True, False])["rank"]
    roles = {order[0]: "works longest", order[-1]: "works least"}
    if means.height > 2:
        roles = {order[round((means.height - 1) / 2)]: "median", **roles}
    chosen = means.filter(pl.col("rank").is_in(drawn_ranks(means, MOST_ROWS)))
    waits = {} if sent is None else {rank: times for rank, *times in sent.by_rank.iter_rows()}
    rows = tuple(
        RankParts(
            row["rank"],
            roles.get(row["rank"], ""),
            {part: row[part] for part in PARTS if row[part] is not None},
            *waits.get(row["rank"], ()),
        )
        for row in chosen.iter_rows(named=True)
    )
    return CellRanks(cell.record.id, rows, means.height)
