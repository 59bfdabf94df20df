"""Tables of single ranks: the parts of their mean step, and the steps that are drawn as timelines."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from worldsize.analysis.groups import Group
from worldsize.analysis.intervals import Interval, length
from worldsize.analysis.ranks import MAX_ROWS, CellRanks, RankParts, rank_parts
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.timeline_step import RankPicture, StepPicture
from worldsize.report.columns import ColumnOf, Row, integers, numbers, table_of, texts
from worldsize.report.result_tables import PART_LABELS
from worldsize.report.section import Fold
from worldsize.report.tables import Table
from worldsize.results.records import BESIDE_PARTS, PARTS

WAIT_NOTE = "Wait: of its communication, until the last rank has issued a message; transfer: from then on (method §3)."
MAX_CELLS = 24
"""Cells whose ranks are shown on the page."""
BY_RANK = "parts-by-rank"
TIMELINE = "timeline"


class _Ranked(NamedTuple):
    cell_id: str
    rank: RankParts


class _Drawn(NamedTuple):
    step: StepPicture
    rank: RankPicture


def _parts(value: Callable[[Row, str], float | None], rows: Sequence[Row]) -> list[ColumnOf[Row]]:
    """A column for each part of a step that there is, of which `value` gives the seconds."""

    def column(part: str) -> ColumnOf[Row]:
        return numbers(PART_LABELS[part].capitalize(), part, lambda row: value(row, part), "ms")

    return [column(part) for part in PARTS if part not in BESIDE_PARTS or any(value(row, part) for row in rows)]


def ranks_of(analysis: StudyAnalysis, found: Sequence[Group]) -> list[CellRanks]:
    """The ranks of each measured cell of several processes, those of the verdict's group first."""
    cells = [cell for group in found for cell in group.measured if cell.world_size > 1]
    ranks = (rank_parts(analysis.run.cells[cell.id], cell.communication_of_step, cell.step_scale) for cell in cells)
    return [each for each in ranks if each is not None]


def rank_parts_table(found: Sequence[CellRanks]) -> Table:
    """The parts of a mean step of each rank."""
    rows = [_Ranked(cell.cell_id, rank) for cell in found for rank in cell.ranks]
    columns: list[ColumnOf[_Ranked]] = [
        texts("Cell", "cell", lambda row: row.cell_id),
        integers("Rank", "rank", lambda row: row.rank.rank),
        texts("Which", "role", lambda row: row.rank.role or None),
        *_parts(_mean_s, rows),
        numbers("Mean step", "mean_step_s", lambda row: row.rank.step_s, "ms"),
        numbers("Wait", "wait_s", lambda row: row.rank.wait_s, "ms", between_workers=True, note=WAIT_NOTE),
        numbers("Transfer", "transfer_s", lambda row: row.rank.transfer_s, "ms", between_workers=True),
    ]
    note = (
        "Means over the timed steps of a rank, scaled as the step time of its cell is (method §2, §8). Ranks of a "
        "synchronised step end together: the slowest is the one that works longest (step − exposed communication), the "
        "others wait for it."
    )
    if any(cell.chosen for cell in found):
        note += (
            f" Of a cell with more than {MAX_ROWS} ranks: rank 0, and {MAX_ROWS - 1} from the one that works longest "
            "over the median to the one that works least."
        )
    return table_of(BY_RANK, "The parts of a step, by rank", columns, rows, note)


def _mean_s(row: _Ranked, part: str) -> float | None:
    return row.rank.parts_s.get(part)


def rank_folds(whole: Table, found: Sequence[CellRanks]) -> tuple[Fold, ...]:
    """The same for the page: a table with bars for each cell, at most MAX_CELLS of them."""
    return tuple(_fold(whole, cell) for cell in found[:MAX_CELLS])


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


def timeline_table(steps: Sequence[StepPicture]) -> Table:
    """The steps that are drawn, with the parts and messages of each drawn rank."""
    rows = [_Drawn(step, rank) for step in steps for rank in step.ranks]
    columns: list[ColumnOf[_Drawn]] = [
        texts("Cell", "cell", lambda row: row.step.cell_id),
        integers("Step", "step", lambda row: row.step.step),
        integers("Rank", "rank", lambda row: row.rank.rank),
        numbers("Begins", "begin_s", lambda row: row.rank.start_ns / 1e9, "ms"),
        *_parts(_drawn_s, rows),
        integers("Messages", "messages", lambda row: row.rank.messages if row.step.world_size > 1 else None),
        numbers("Wait", "wait_s", lambda row: _length_s(row, row.rank.wait), "ms"),
        numbers("Transfer", "transfer_s", lambda row: _length_s(row, row.rank.transfer), "ms"),
    ]
    note = (
        "Of each cell the timed step whose time is nearest the median. Begins: after the first rank, on rank 0's "
        "clock. Wait and transfer: unions over the messages of the rank, until the last rank has issued a message and "
        "from then on (method §3)."
    )
    return table_of(TIMELINE, "The steps that are drawn", columns, rows, note)


def _drawn_s(row: _Drawn, part: str) -> float | None:
    return None if part == "exposed_sync_s" and row.step.world_size == 1 else row.rank.parts_s.get(part)


def _length_s(row: _Drawn, intervals: Sequence[Interval]) -> float | None:
    """Seconds of communication; absent, not 0, for one worker."""
    return length(list(intervals)) / 1e9 if row.step.world_size > 1 else None
