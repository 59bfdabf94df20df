"""What a person's command said last before it failed."""

from typing import NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, table_of, texts
from worldsize.report.tables import Table

OF_COMMANDS = "CommandError"
"""Kind of the error of a command of a person's own; what it said last is its traceback."""


class _Line(NamedTuple):
    cell: str
    text: str


def last_lines(cell: CellAnalysis) -> list[str]:
    """The last lines of stderr of a command that failed; empty for any other cell."""
    error = cell.record.error if cell.record else None
    if error is None or error.kind != OF_COMMANDS or not error.traceback:
        return []
    return error.traceback.splitlines()


def failure_table(analysis: StudyAnalysis) -> Table:
    """The last lines of stderr of each command that failed."""
    columns: list[ColumnOf[_Line]] = [
        texts("Cell", "cell", lambda row: row.cell),
        texts("Last lines of stderr", "line", lambda row: row.text),
    ]
    rows = (_Line(cell.id, line) for cell in analysis.cells for line in last_lines(cell))
    return table_of("failures", "What failed", columns, rows, "")
