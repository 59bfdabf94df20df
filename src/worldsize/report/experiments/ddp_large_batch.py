"""Experiment C, `ddp-large-batch`: DDP on more workers, accuracy at a large batch, and what must be agreed on."""

from dataclasses import replace

from worldsize.analysis.efficiency import compared
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.experiments.accuracy import accuracy_charts, accuracy_paragraph, epochs_table, rule
from worldsize.report.experiments.agreement import agreement_paragraphs, divergence_table, order_table
from worldsize.report.experiments.scaling import paragraph, tables
from worldsize.report.message_table import messages_table
from worldsize.report.scaling_tables import efficiency_paragraph, efficiency_table
from worldsize.report.section import Section
from worldsize.results.beside import ACCURACY

EFFICIENCY = ("c5-efficiency", "C(5) Statistical efficiency and time to accuracy")


def section(analysis: StudyAnalysis) -> Section:
    """Part 1 from the study itself, parts 2 and 3 from its further parts, as far as they were run."""
    shown = analysis.parts.get("demonstrations")
    accuracy = compared(analysis) if ACCURACY in analysis.parts else None
    drawings = accuracy_charts(accuracy) if accuracy else ()
    second = (epochs_table(accuracy), efficiency_table(accuracy, *EFFICIENCY, rule)) if accuracy else ()
    third = (divergence_table(shown), order_table(shown)) if shown else ()
    sent = replace(messages_table(analysis), id="c6-messages", title="C(6) Messages by kind")
    said = [paragraph(analysis)]
    if accuracy:
        said += [accuracy_paragraph(accuracy), efficiency_paragraph(accuracy, rule)]
    if shown:
        said += agreement_paragraphs(shown)
    return Section(
        "experiment-c",
        "C. DDP on more workers, and a large batch",
        drawings,
        (*tables(analysis, "C", "DDP"), *second, sent, *third),
        tuple(part for part in said if part),
    )
