"""Statistical efficiency and time to accuracy as a table, and in words (method.md §10)."""

from collections.abc import Callable

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.efficiency import Comparison, Efficiency
from worldsize.analysis.numbers import ABSENT, estimate_text, percent_text
from worldsize.report.columns import ColumnOf, estimates, prose, table_of, texts
from worldsize.report.tables import Entry, Table

Words = Callable[[CellAnalysis], str]


def efficiency_table(found: Comparison, name: str, title: str, rule: Words | None = None) -> Table:
    """A row for each cell; `rule` says its recipe, where cells differ in it."""
    columns: list[ColumnOf[Efficiency] | None] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        prose("Learning-rate rule", "rule", lambda row: rule(row.cell)) if rule else None,
        ColumnOf("Samples to the target", ("samples",), value=_samples),
        estimates("Statistical efficiency", "statistical_efficiency", lambda row: row.statistical),
        prose("To the target", "told", lambda row: row.told),
        estimates("Throughput ratio", "throughput_ratio", lambda row: row.throughput),
        estimates("Time-to-accuracy speed-up", "time_to_accuracy_speedup", lambda row: row.time_to_accuracy),
        prose("Remark", "remark", lambda row: row.remark),
    ]
    note = (
        f"{_target(found)} Samples to it: on the straight line between the two evaluations around the first crossing, "
        "geometric mean over the seeds; a target that was reached before the first evaluation, or not at all, has no "
        "number, and asks for another --target-accuracy. Statistical efficiency: samples at the baseline ÷ here, "
        "paired by seed, with Student's 95 % interval of its logarithm; indistinguishable: the interval holds 1. "
        "Throughput ratio: samples/s ÷ those of the baseline, of steps timed in turn. Time-to-accuracy speed-up: "
        "throughput ratio × statistical efficiency, with an interval from both (method §10)."
    )
    return table_of(name, title, columns, found.rows, note)


def _target(found: Comparison) -> str:
    how = "set beforehand" if found.beforehand else "chosen after the fact, the largest that every training reached"
    seeds = ", ".join(map(str, found.seeds))
    return f"Target: {percent_text(found.target)} test accuracy, {how}; seed{'s'[: len(found.seeds) - 1]} {seeds}."


def _samples(row: Efficiency) -> Entry:
    """A count, or why there is none: never a number for a target that was not reached."""
    whys = dict.fromkeys(each.why for each in row.crossings if each.why)
    words = "; ".join(whys) or ABSENT
    return Entry(words if row.samples is None else f"{row.samples:,.0f}", (row.samples,))


def efficiency_paragraph(found: Comparison, rule: Words) -> str:
    """What each cell takes to the target, in words; empty without a cell beside the baseline."""
    others = [row for row in found.rows if row.told != "baseline"]
    said = [f"{rule(row.cell)} (B = {row.cell.global_batch:,}): {_in_words(row)}" for row in others]
    return f"{_target(found)} {'; '.join(said)}." if said else ""


def _in_words(row: Efficiency) -> str:
    if row.statistical is None:
        return row.remark or row.told
    words = f"statistical efficiency {estimate_text(row.statistical)}, {row.told}"
    if row.time_to_accuracy is None:
        return f"{words}, no time-to-accuracy speed-up"
    return f"{words}, time-to-accuracy speed-up {estimate_text(row.time_to_accuracy)}"
