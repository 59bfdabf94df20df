"""The table of compiling: what each cell's launches took before their first turn (`--compile`)."""

from collections.abc import Sequence

from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, table_of, texts
from worldsize.report.tables import Table

NOTE = (
    "From the first forward of the compiled model to the end of its backward, on the slowest rank, before anything is "
    "timed: in no step time, and part of the time that a study takes. A later launch finds what torch has kept."
)
Row = tuple[str, Sequence[float]]


def compile_table(analysis: StudyAnalysis) -> Table:
    """A row for each cell that was compiled."""
    columns: list[ColumnOf[Row]] = [
        texts("Cell", "cell", lambda row: row[0]),
        integers("Launches", "launches", lambda row: len(row[1])),
        numbers("First launch", "first_compile_s", lambda row: row[1][0], "s"),
        numbers("Longest later launch", "later_compile_s", lambda row: max(row[1][1:], default=None), "s"),
    ]
    records = (cell.record for cell in analysis.cells if cell.record is not None)
    rows = ((record.id, record.compile_s) for record in records if record.compile_s)
    return table_of("compiling", "Compiling", columns, rows, NOTE)
