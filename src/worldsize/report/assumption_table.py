"""Mistakes that are often made with such numbers: what is right, what the mistake gives, and why it is one."""

from worldsize.analysis.assumptions import Assumption, assumptions
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, prose, table_of, texts
from worldsize.report.tables import Table


def assumption_table(analysis: StudyAnalysis) -> Table:
    """One row for each wrong assumption that would change a number of this study."""
    columns: list[ColumnOf[Assumption]] = [
        texts("Mistake", "mistake", lambda each: each.mistake),
        prose("Where", "where", lambda each: each.where),
        prose("Correct", "ours", lambda each: each.ours),
        prose("With the mistake", "other", lambda each: each.other),
        prose("Why it is one", "why", lambda each: each.why),
    ]
    found = assumptions(analysis.record, analysis.cells, analysis.scaling)
    return table_of("assumptions", "Common mistakes with these numbers", columns, found)
