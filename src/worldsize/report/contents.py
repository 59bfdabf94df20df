"""What a report holds and in which order: the page and the files are made from the same sections."""

from collections.abc import Callable

from worldsize.analysis.deviations import deviations
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.verdict import headline
from worldsize.report.assumption_table import assumption_table
from worldsize.report.charts import loss_chart, parts_chart, throughput_chart
from worldsize.report.comm_tables import communication_table
from worldsize.report.experiments import EXPERIMENTS
from worldsize.report.fact_tables import accuracy_table, provenance_table, warnings_table, wire_table
from worldsize.report.profile_tables import profile_table, profiled
from worldsize.report.result_tables import parts_table, results_table
from worldsize.report.scaling_tables import epoch_table, scaling_table, serial_table
from worldsize.report.section import Section, with_paragraphs
from worldsize.report.svg import Drawing
from worldsize.report.verify_table import same_training_table


def sections(analysis: StudyAnalysis) -> list[Section]:
    """All sections of a report; a table without rows and a section without anything are kept, empty.

    Only what nobody asked for, a profile, is not there at all.
    """
    batches = _batches(analysis)

    def drawn(chart: Callable[[StudyAnalysis, int], Drawing | None]) -> tuple[Drawing, ...]:
        return tuple(drawing for drawing in (chart(analysis, batch) for batch in batches) if drawing is not None)

    scaling = (scaling_table(analysis, "weak"), scaling_table(analysis, "strong"), serial_table(analysis))
    made = EXPERIMENTS.get(analysis.record.settings.experiment)
    differs = deviations(analysis.record.settings)
    smaller = (f"Not as the experiment is defined (what is, in brackets): {'; '.join(differs)}.",) if differs else ()
    return [
        *([with_paragraphs(made(analysis), smaller)] if made else []),
        Section("results", "Results", (), (results_table(analysis),)),
        Section("step", "Where a step goes", drawn(parts_chart), (parts_table(analysis),)),
        Section("scaling", "Scaling", drawn(throughput_chart), scaling),
        Section(
            "communication",
            "Compute and communication",
            (),
            (communication_table(analysis), epoch_table(analysis), wire_table(analysis)),
        ),
        *([Section("profile", "Profile", (), (profile_table(analysis),))] if profiled(analysis) else []),
        Section("training", "Training", drawn(loss_chart), (same_training_table(analysis), accuracy_table(analysis))),
        Section("assumptions", "Other numbers for the same run", tables=(assumption_table(analysis),)),
        Section("warnings", "Warnings", (), (warnings_table(analysis),)),
        Section("provenance", "Provenance", (), (provenance_table(analysis),)),
    ]


def _batches(analysis: StudyAnalysis) -> list[int]:
    """The local batches of the plan, that of the verdict first."""
    found = headline(analysis)
    planned = dict.fromkeys(cell.batch_size for cell in analysis.cells)
    return sorted(planned, key=lambda batch: found is None or batch != found.fastest.batch_size)
