"""What a report holds and in which order: the page and the files are made from the same sections."""

from collections.abc import Iterable, Iterator, Sequence

from worldsize.analysis.communication import observing_text
from worldsize.analysis.efficiency import compared
from worldsize.analysis.groups import Group, groups
from worldsize.analysis.scaling import Kind
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.verdict import step_sum
from worldsize.report.charts.bandwidth import bandwidth_chart
from worldsize.report.charts.loss import loss_chart
from worldsize.report.charts.parts import parts_chart, sample_parts_chart
from worldsize.report.charts.scaling import scaling_charts, throughput_chart
from worldsize.report.charts.timeline import how_to_read, scenes, timeline_chart
from worldsize.report.comm_tables import communication_table
from worldsize.report.compile_table import compile_table
from worldsize.report.experiments import EXPERIMENTS, deviations
from worldsize.report.fact_tables import accuracy_table, provenance_table, warnings_table, wire_table
from worldsize.report.failure_table import failure_table, last_lines
from worldsize.report.forecast_section import forecast_section
from worldsize.report.memory_table import memory_table
from worldsize.report.message_table import messages_table
from worldsize.report.profile import profile_table, profiled
from worldsize.report.rank_tables import TIMELINE, rank_folds, rank_parts_table, ranks_of, timeline_table
from worldsize.report.rehearsal_tables import rehearsal_section
from worldsize.report.result_tables import parts_table, results_table
from worldsize.report.rung_table import rung_sections
from worldsize.report.scaling_tables import (
    assumption_table,
    efficiency_table,
    epoch_table,
    machine_table,
    scaling_table,
    serial_table,
)
from worldsize.report.section import Fold, Section, with_paragraphs
from worldsize.report.svg import Drawing
from worldsize.report.tables import Table
from worldsize.report.verify_table import same_training_table
from worldsize.results.beside import ACCURACY

WITH_LOSS = WITH_PROFILE = ("sync-ladder",)
WITH_MESSAGES = ("ddp-large-batch",)
"""Experiments whose own section has what others have further below: nothing stands twice on a page."""


def sections(analysis: StudyAnalysis) -> list[Section]:
    """All sections of a report; a table without rows and a section without anything are kept, empty.

    Left out: a profile that was not asked for, and what the experiment's own section shows.
    """
    experiment, found = analysis.record.asked.experiment, groups(analysis)
    made = EXPERIMENTS.get(experiment)
    differs = deviations(analysis.record.asked)
    smaller = (f"Differs from the preset (its value in brackets): {'; '.join(differs)}.",) if differs else ()
    sent = () if experiment in WITH_MESSAGES else (messages_table(analysis),)
    protocol = [with_paragraphs(made(analysis), smaller)] if made else []
    return [
        *rehearsal_section(analysis),
        *(protocol if analysis.sweeps else []),  # a sweep has nothing but its experiment's tables to show first
        Section("results", "Results", (), (results_table(analysis),)),
        *_failures(analysis),
        _step(analysis, found),
        _timeline(analysis, found),
        _scaling(analysis, found),
        *rung_sections(analysis),
        Section(
            "communication",
            "Compute and communication",
            _drawn([bandwidth_chart(analysis)]),
            (communication_table(analysis), epoch_table(analysis), wire_table(analysis), *sent),
            folds=tuple(Fold("Messages by kind", table, table.id) for table in sent if table.rows),
        ),
        *forecast_section(analysis),
        Section("memory", "Memory", (), (memory_table(analysis),)),
        *([] if analysis.sweeps else protocol),
        *_profile(analysis),
        Section(
            "training",
            "Training",
            _losses(analysis, found),
            (
                same_training_table(analysis),
                accuracy_table(analysis),
                *_efficiency(analysis),
                *(table for table in (compile_table(analysis),) if table.rows),
            ),
        ),
        Section("assumptions", "Common mistakes", tables=(assumption_table(analysis),)),
        Section("warnings", "Warnings", (), (warnings_table(analysis),)),
        Section("provenance", "Provenance", (), (provenance_table(analysis),)),
    ]


def _failures(analysis: StudyAnalysis) -> list[Section]:
    table = failure_table(analysis)
    said = tuple(f"{cell.id}: {cell.reason}." for cell in analysis.cells if last_lines(cell))
    return [Section("failures", "What failed", (), (table,), said)] if table.rows else []


def lead(analysis: StudyAnalysis, contents: Sequence[Section]) -> Drawing | None:
    """The one chart of the first screen, by what was studied.

    A sweep: throughput against b. Several world sizes: throughput against N. Else a step, taken apart, by strategy.
    """
    drawings = {drawing.id: drawing for section in contents for drawing in section.drawings}
    found = groups(analysis)
    wanted = ["a-throughput-against-b", "sample-parts"] if analysis.sweeps else []
    for group in found[:1]:
        against = f"throughput-{group.id}"
        wanted += [against] if len(group.world_sizes) > 1 else []
        wanted += [f"step-parts-{group.id}", against]
    return next((drawings[name] for name in wanted if name in drawings), next(iter(drawings.values()), None))


def _step(analysis: StudyAnalysis, found: Sequence[Group]) -> Section:
    drawings = [sample_parts_chart(analysis)] if analysis.sweeps else [parts_chart(group) for group in found]
    ranks = ranks_of(analysis, found)
    by_rank = rank_parts_table(ranks)
    folds = rank_folds(by_rank, ranks)
    overhead = None if analysis.observing is None else observing_text(analysis.observing)
    said = tuple(text for text in (step_sum(analysis), overhead) if text)
    return Section("step", "Where a step goes", _drawn(drawings), (parts_table(analysis), by_rank), said, folds)


def _timeline(analysis: StudyAnalysis, found: Sequence[Group]) -> Section:
    drawn = scenes(analysis, found)
    steps = {step.cell_id: step for scene in drawn for step in scene.steps}
    table = timeline_table(list(steps.values()))
    charts = tuple(timeline_chart(scene) for scene in drawn)
    folds = [Fold(chart.title, drawing=chart) for chart in charts[1:]]
    folds += [Fold("The drawn steps in numbers", table, TIMELINE)] if table.rows else []
    title = "One real step of each strategy"
    return Section("timeline", title, charts, (table,), how_to_read(found) if charts else (), tuple(folds))


def _scaling(analysis: StudyAnalysis, found: Sequence[Group]) -> Section:
    other: Kind = "strong" if analysis.kind == "weak" else "weak"
    ours, others = scaling_charts(analysis, analysis.kind), scaling_charts(analysis, other)
    drawings: list[Drawing | None] = []
    for group in found:
        drawings += [throughput_chart(analysis, group), *ours.get(group.batch, [])]
    drawings += [chart for charts in others.values() for chart in charts]
    machine = (table for table in (machine_table(analysis),) if table.rows)
    tables = (*machine, scaling_table(analysis, "weak"), scaling_table(analysis, "strong"), serial_table(analysis))
    return Section("scaling", "Speed-up and efficiency", _drawn(drawings), tables)


def _profile(analysis: StudyAnalysis) -> Iterator[Section]:
    if profiled(analysis) and analysis.record.asked.experiment not in WITH_PROFILE:
        yield Section("profile", "Profile", (), (profile_table(analysis),))


def _losses(analysis: StudyAnalysis, found: Sequence[Group]) -> tuple[Drawing, ...]:
    if analysis.sweeps or analysis.record.asked.experiment in WITH_LOSS:
        return ()
    return _drawn(loss_chart(group, len(analysis.cells)) for group in found)


def _efficiency(analysis: StudyAnalysis) -> Iterator[Table]:
    """Of trainings that were given several seeds or a target, and are not the business of an experiment."""
    settings = analysis.record.asked
    asked = settings.seeds > 1 or settings.target_accuracy is not None
    if asked and settings.epochs is not None and ACCURACY not in analysis.parts:
        yield efficiency_table(compared(analysis), "efficiency", "Statistical efficiency and time to accuracy")


def _drawn(charts: Iterable[Drawing | None]) -> tuple[Drawing, ...]:
    return tuple(chart for chart in charts if chart is not None)
