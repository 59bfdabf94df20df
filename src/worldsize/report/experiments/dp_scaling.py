"""Experiment B, `dp-scaling`: DataParallel on more and more devices."""

from worldsize.analysis.study import StudyAnalysis
from worldsize.report.experiments.scaling import paragraph, tables
from worldsize.report.section import Section


def section(analysis: StudyAnalysis) -> Section:
    """Tables (1) to (3) and the paragraph."""
    return Section(
        "experiment-b",
        "B. DataParallel on more devices",
        tables=tables(analysis, "B", "DataParallel"),
        paragraphs=(paragraph(analysis),),
    )
