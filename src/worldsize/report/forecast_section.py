"""The forecast of a run on its page, where `worldsize predict` was asked for one."""

from collections.abc import Iterator

from worldsize.analysis.study import StudyAnalysis
from worldsize.errors import OutputError
from worldsize.report.charts.forecast import Measured, forecast_chart
from worldsize.report.forecast_tables import forecast_table, held_out_table, sentences
from worldsize.report.section import Fold, Section
from worldsize.results.forecast_records import ForecastReport, read_forecast

TITLE = "Forecast"
AGAIN = "`worldsize predict` makes it again."


def forecast_section(analysis: StudyAnalysis) -> Iterator[Section]:
    """Chart, tables and what they rest on; nothing without a forecast."""
    try:
        report = read_forecast(analysis.run.folder)
    except OutputError as error:
        yield Section("forecast", TITLE, paragraphs=(f"{error}. {AGAIN}",))
        return
    if report is None:
        return
    said = tuple(sentences(report))
    now = {cell.id: cell.summary.step_s.value for cell in analysis.cells if cell.summary is not None}
    if any(now.get(name) != step_s for name, step_s in report.measured.items()):
        said = (f"This forecast was made from other numbers than the run has now. {AGAIN}", *said)
    chart, errors = forecast_chart(report, list(_measured(analysis, report))), held_out_table(report)
    yield Section(
        "forecast",
        TITLE,
        () if chart is None else (chart,),
        (forecast_table(report), errors),
        said,
        folds=(Fold(errors.title, errors, errors.id),) if errors.rows else (),
    )


def _measured(analysis: StudyAnalysis, report: ForecastReport) -> Iterator[Measured]:
    """The cells that lie on the lines of the forecast: of the same batch, over the same links."""
    batches, strategies = {row.batch_size for row in report.rows}, {row.strategy for row in report.rows}
    for cell in analysis.cells:
        same = cell.batch_size in batches and (cell.world_size == 1 or not report.other_links)
        if (
            cell.summary is not None
            and not cell.alone
            and same
            and (cell.world_size == 1 or cell.strategy in strategies)
        ):
            yield Measured(cell.strategy, cell.world_size, cell.summary.samples_per_s.value)
