"""Tables of single ranks: the parts of their mean step, and the steps that are drawn as timelines."""

from collections.abc import Sequence
from dataclasses import replace

from worldsize.analysis.groups import Group
from worldsize.analysis.intervals import length
from worldsize.analysis.rank_parts import MOST_ROWS, CellRanks, RankParts, rank_parts
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.timeline_step import RankPicture, StepPicture
from worldsize.report.result_tables import CELL, MS, PART_LABELS
from worldsize.report.section import Fold
from worldsize.report.tables import Column, Entry, Table, integer, number, text
from worldsize.results.records import PARTS

WAIT_NOTE = "Wait: of its communication, until the last rank has issued a message; transfer: from then on (method §3)."
MOST_CELLS = 24
"""Cells whose ranks are shown on the page."""
BY_RANK = "parts-by-rank"
TIMELINE = "timeline"
PART_COLUMNS = tuple(Column(PART_LABELS[part].capitalize(), (part,), "ms") for part in PARTS)


def ranks_of(analysis: StudyAnalysis, found: Sequence[Group]) -> list[CellRanks]:
    """The ranks of each measured cell of several processes, those of the verdict's group first."""
    cells = [cell for group in found for cell in group.measured if cell.world_size > 1]
    ranks = (rank_parts(analysis.run.cells[cell.id], cell.communication) for cell in cells)
    return [each for each in ranks if each is not None]


def rank_parts_table(found: Sequence[CellRanks]) -> Table:
    """The parts of a mean step of each rank."""
    columns = (
        CELL,
        Column("Rank", ("rank",)),
        Column("Which", ("role",), align="left"),
        *PART_COLUMNS,
        Column("Mean step", ("mean_step_s",), "ms"),
        Column("Wait", ("wait_s",), "ms", between_workers=True, note=WAIT_NOTE),
        Column("Transfer", ("transfer_s",), "ms", between_workers=True),
    )
    rows = tuple((text(cell.cell_id), *_rank_row(rank)) for cell in found for rank in cell.ranks)
    note = (
        "Means over the timed steps of a rank (method §2). Ranks of a synchronised step end together: the slowest is "
        "the one that works longest (step − exposed communication), the others wait for it."
    )
    if any(cell.chosen for cell in found):
        note += (
            f" Of a cell with more than {MOST_ROWS} ranks: rank 0, and {MOST_ROWS - 1} from the one that works longest "
            "over the median to the one that works least."
        )
    return Table(BY_RANK, "The parts of a step, by rank", columns, rows, note)


def rank_folds(whole: Table, found: Sequence[CellRanks]) -> tuple[Fold, ...]:
    """The same for the page: a table with bars for each cell, at most MOST_CELLS of them."""
    return tuple(_fold(whole, cell) for cell in found[:MOST_CELLS])


def _fold(whole: Table, cell: CellRanks) -> Fold:
    rows = tuple(row[1:] for row in whole.rows if row[0].text == cell.cell_id)
    longest = max(rank.step_s for rank in cell.ranks) or 1.0
    table = replace(
        whole, id=f"{BY_RANK}-{cell.cell_id}", title=f"{cell.cell_id}, by rank", columns=whole.columns[1:], rows=rows
    )
    count = f"{len(cell.ranks)} of {cell.of} ranks" if cell.chosen else f"{cell.of} ranks"
    bars = tuple(
        tuple((part, share) for part in PARTS if (share := rank.parts_s.get(part, 0.0) / longest) > 0)
        for rank in cell.ranks
    )
    return Fold(f"{cell.cell_id}, by rank ({count})", table, BY_RANK, bars)


def _rank_row(rank: RankParts) -> tuple[Entry, ...]:
    return (
        integer(rank.rank),
        text(rank.role or None),
        *(number(rank.parts_s.get(part), MS) for part in PARTS),
        number(rank.step_s, MS),
        number(rank.wait_s, MS),
        number(rank.transfer_s, MS),
    )


def timeline_table(steps: Sequence[StepPicture]) -> Table:
    """The steps that are drawn, with the parts and messages of each drawn rank."""
    columns = (
        CELL,
        Column("Step", ("step",)),
        Column("Rank", ("rank",)),
        Column("Begins", ("begin_s",), "ms"),
        *PART_COLUMNS,
        Column("Messages", ("messages",)),
        Column("Wait", ("wait_s",), "ms"),
        Column("Transfer", ("transfer_s",), "ms"),
    )
    rows = tuple(_timeline_row(step, rank) for step in steps for rank in step.ranks)
    note = (
        "Of each cell the timed step whose time is nearest the median. Begins: after the first rank, on rank 0's "
        "clock. Wait and transfer: unions over the messages of the rank, until the last rank has issued a message and "
        "from then on (method §3)."
    )
    return Table(TIMELINE, "The steps that are drawn", columns, rows, note)


def _timeline_row(step: StepPicture, rank: RankPicture) -> tuple[Entry, ...]:
    several = step.world_size > 1
    return (
        text(step.cell_id),
        integer(step.step),
        integer(rank.rank),
        number(rank.start_ns / 1e9, MS),
        *(number(rank.parts_s[part] if several or part != "exposed_sync_s" else None, MS) for part in PARTS),
        integer(rank.messages if several else None),
        number(length(list(rank.wait)) / 1e9 if several else None, MS),
        number(length(list(rank.transfer)) / 1e9 if several else None, MS),
    )
