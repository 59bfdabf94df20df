"""The classic numbers beside ours, each with a line on why it is not it."""

from worldsize.analysis.assumptions import Assumption, assumptions
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, prose, table_of, texts
from worldsize.report.tables import Table


def assumption_table(analysis: StudyAnalysis) -> Table:
    """One row for each wrong assumption that would change a number of this study."""
    columns: list[ColumnOf[Assumption]] = [
        texts("Wrong assumption", "mistake", lambda each: each.mistake),
        prose("Where", "where", lambda each: each.where),
        prose("Ours", "ours", lambda each: each.ours),
        prose("The other number", "other", lambda each: each.other),
        prose("Why it is not it", "why", lambda each: each.why),
    ]
    found = assumptions(analysis.record, analysis.cells, analysis.scaling)
    return table_of("assumptions", "Numbers that are often printed instead", columns, found)
