"""Forecasts as tables and sentences: for the terminal and the page (method.md §14)."""

from collections.abc import Iterator
from math import inf

import numpy as np

from worldsize.analysis.numbers import number_text, percent_text
from worldsize.report.columns import ColumnOf, estimates, integers, numbers, table_of, texts
from worldsize.report.tables import Table
from worldsize.results.forecast_records import Band, Forecast, ForecastReport, HeldOut
from worldsize.results.records import Estimate

NOTE = (
    "Predicted, not measured. In brackets: nine in ten steps should lie between these. Limited by: what takes most of "
    "the step beside computing: exposed communication by its bytes or by the latency of its messages, computing that "
    "messages slow (slowdown), or waiting for the last rank (stragglers). Amdahl's law, fitted to the measured "
    "speed-ups, and (Tc^γ + Tn^γ)^(1/γ), fitted to the measured steps, stand beside it for comparison (method §14)."
)
IN_SECONDS_S = 10.0
"""Steps from which on a table has seconds in place of milliseconds."""
HELD_OUT_NOTE = (
    "Each measured cell, predicted from the others as if it had not been run; errors are predicted ÷ measured − 1."
)


def forecast_table(report: ForecastReport) -> Table:
    """A row for each strategy and world size."""
    columns: list[ColumnOf[Forecast] | None] = [
        texts("Strategy", "strategy", lambda row: row.strategy),
        integers("N", "world_size", lambda row: row.world_size),
        integers("b", "local_batch", lambda row: row.batch_size),
        estimates("Step", "step_s", lambda row: _banded(row.step_s), "ms"),
        estimates("Samples/s", "samples_per_s", lambda row: _banded(row.samples_per_s)),
        estimates(_speedup_name(report), "speedup", lambda row: _banded(row.speedup)),
        estimates("Efficiency", "efficiency", lambda row: _banded(row.efficiency), "%"),
        texts("Limited by", "limit", lambda row: row.limit),
        numbers("Step, Amdahl", "amdahl_step_s", lambda row: row.amdahl_step_s, "ms"),
        numbers("Step, γ", "power_step_s", lambda row: row.power_step_s, "ms"),
        estimates("Step, measured", "measured_step_s", lambda row: row.measured_step_s, "ms")
        if any(row.measured_step_s for row in report.rows)
        else None,
    ]
    return table_of("forecast", "Forecast", columns, report.rows, NOTE)


def compact_forecast_tables(report: ForecastReport) -> Iterator[Table]:
    """The same for 80 columns: a table for each strategy, without what the formulas say."""
    slow = any(row.step_s.high >= IN_SECONDS_S for row in report.rows)
    columns: list[ColumnOf[Forecast]] = [
        integers("N", "world_size", lambda row: row.world_size),
        estimates("Step", "step_s", lambda row: _banded(row.step_s), "s" if slow else "ms"),
        numbers("Samples/s", "samples_per_s", lambda row: row.samples_per_s.value),
        estimates(_speedup_name(report).replace("-scaling", ""), "speedup", lambda row: _banded(row.speedup)),
        numbers("Eff.", "efficiency", lambda row: row.efficiency.value if row.efficiency else None, "%"),
        texts("Limit", "limit", lambda row: row.limit),
    ]
    for strategy in dict.fromkeys(row.strategy for row in report.rows):
        rows = [row for row in report.rows if row.strategy == strategy]
        batches = ", ".join(str(batch) for batch in dict.fromkeys(row.batch_size for row in rows))
        yield table_of("forecast", f"{strategy}, b = {batches}", columns, rows)


def held_out_table(report: ForecastReport) -> Table:
    """How far off each measured cell would have been predicted."""
    columns: list[ColumnOf[HeldOut]] = [
        texts("Cell", "cell", lambda row: row.cell),
        numbers("Step, measured", "measured_s", lambda row: row.measured_s, "ms"),
        numbers("Step, predicted", "predicted_s", lambda row: row.predicted_s, "ms"),
        numbers("Error", "error", lambda row: row.error, "%"),
        numbers("Steps in the band", "in_band", lambda row: row.in_band, "%"),
        numbers("Error, Amdahl", "amdahl_error", lambda row: row.amdahl_error, "%"),
        numbers("Error, γ", "power_error", lambda row: row.power_error, "%"),
    ]
    return table_of("forecast-error", "Its own error", columns, report.held_out, HELD_OUT_NOTE)


def sentences(report: ForecastReport) -> Iterator[str]:
    """What it takes for granted, where it ends to pay, how far off it is, and what would make it surer."""
    yield where_text(report)
    yield from report.assumes
    for row in report.rows:
        if row.measured_step_s is not None:
            yield (
                f"{row.strategy} with {row.world_size} workers and b = {row.batch_size} was measured: "
                f"{number_text(1e3 * row.measured_step_s.value)} ms, beside a forecast of "
                f"{number_text(1e3 * row.step_s.value)} ms."
            )
    for knee in report.knees:
        if knee.world_size is not None:
            best = max(row.samples_per_s.value for row in report.rows if row.strategy == knee.strategy)
            yield (
                f"{knee.strategy}: {knee.world_size} workers already reach 95 % of the best "
                f"{number_text(best)} samples/s of those asked for."
            )
    yield error_text(report)
    for name, why in report.not_predicted.items():
        yield f"{name} is not predicted: {'. '.join(line.rstrip('.') for line in why.splitlines())}"
    measurable = [each for each in report.narrow if each.command]
    for each in [*report.narrow[:1], *(each for each in measurable[:1] if each is not report.narrow[0])]:
        measure = f" Measure it: {each.command}" if each.command else ""
        moved = percent_text(each.effect)
        yield f"Known least: {each.what}. Its doubt moves the forecast of the largest world by {moved}.{measure}"


def where_text(report: ForecastReport) -> str:
    """Over which links, and in which buckets."""
    rate, latency = report.link_bits_per_s, report.link_latency_s
    link = "" if rate is None else f" of {number_text(rate / 1e6)} Mbit/s"
    link += "" if latency is None else f" with {number_text(1e6 * latency)} µs more latency"
    whose = "other links than the run has" if report.other_links else "the links of the run"
    buckets = "" if report.bucket_mb is None else f", in buckets of {report.bucket_mb} MB"
    return f"Over {whose}{f': {link.strip()}' if link else ''}{buckets.replace('auto MB', 'the planned size')}."


def error_text(report: ForecastReport) -> str:
    """The errors of the cells that were left out, in a sentence."""
    if not report.held_out:
        return "Its own error is not known: no cell can be left out and still be predicted from the others."
    count = len(report.held_out)
    errors = _errors([each.error for each in report.held_out])
    beside = [
        f"{name} {_errors(known)}"
        for name, found in (
            ("Amdahl's law", [each.amdahl_error for each in report.held_out]),
            ("(Tc^γ + Tn^γ)^(1/γ)", [each.power_error for each in report.held_out]),
        )
        if (known := [error for error in found if error is not None])
    ]
    cells = "the one measured cell" if count == 1 else f"each of the {count} measured cells"
    text = f"Its own error, {cells} predicted from the others: {errors}"
    return f"{text} ({'; '.join(beside)}).{_beaten(report)}" if beside else f"{text}."


def _beaten(report: ForecastReport) -> str:
    """A sentence where a formula is nearer to the measured cells than the forecast is."""

    def median(errors: list[float | None]) -> float:
        known = [abs(error) for error in errors if error is not None]
        return float(np.median(known)) if len(known) == len(errors) else inf

    own = median([each.error for each in report.held_out])
    formulas = {
        "Amdahl's law": median([each.amdahl_error for each in report.held_out]),
        "The formula with γ": median([each.power_error for each in report.held_out]),
    }
    name = min(formulas, key=lambda each: formulas[each])
    return f" {name} is nearer to these cells: take the forecast with care." if formulas[name] < own else ""


def _errors(found: list[float]) -> str:
    sizes = np.abs(found)
    if sizes.size == 1:
        return percent_text(float(sizes[0]))
    return f"median {percent_text(float(np.median(sizes)))}, largest {percent_text(float(sizes.max()))}"


def _banded(band: Band | None) -> Estimate | None:
    return None if band is None else Estimate(value=band.value, low=band.low, high=band.high, samples=1)


def _speedup_name(report: ForecastReport) -> str:
    return "Strong-scaling speed-up" if any(row.scaling == "strong" for row in report.rows) else "Scaled speed-up"
