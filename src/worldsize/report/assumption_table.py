"""The classic numbers beside ours, each with a line on why it is not it."""

from worldsize.analysis.assumptions import assumptions
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.tables import Column, Table, text


def assumption_table(analysis: StudyAnalysis) -> Table:
    """One row for each wrong assumption that would change a number of this study."""
    columns = (
        Column("Wrong assumption", ("mistake",), align="left"),
        Column("Where", ("where",), align="prose"),
        Column("Ours", ("ours",), align="prose"),
        Column("The other number", ("other",), align="prose"),
        Column("Why it is not it", ("why",), align="prose"),
    )
    found = assumptions(analysis.record, analysis.cells, analysis.scaling)
    rows = tuple(
        (text(each.mistake), text(each.where), text(each.ours), text(each.other), text(each.why)) for each in found
    )
    return Table("assumptions", "Numbers that are often printed instead", columns, rows)
