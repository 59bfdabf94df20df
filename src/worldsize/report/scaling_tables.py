"""The tables of scaling: speed-ups, serial fractions, epochs, statistical efficiency and time to accuracy.

And the classic numbers beside ours, each with a line on why it is not it (method.md §6, §10).
"""

from collections.abc import Callable

from worldsize.analysis.assumptions import Assumption, assumptions
from worldsize.analysis.breakdown import EpochSplit
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.efficiency import Comparison, Efficiency
from worldsize.analysis.numbers import ABSENT, estimate_text, percent_text
from worldsize.analysis.scaling import Kind, ScalingRow, SerialFraction
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, estimates, integers, numbers, prose, table_of, texts
from worldsize.report.result_tables import OWN_LOOP, baseline_id, chosen_note, rows_against_all_cores
from worldsize.report.tables import Entry, Table
from worldsize.results.records import Estimate

SERIAL_NOTE = (
    "Serial fraction: the serial share of the work that alone would explain this speed-up (Karp–Flatt), with the "
    "interval that follows from it; none where one worker is faster, the whole interval of the speed-up below 1. "
)
Words = Callable[[CellAnalysis], str]


def scaling_table(analysis: StudyAnalysis, kind: Kind) -> Table:
    """Weak (same local batch) or strong (same global batch) scaling (method.md §6)."""
    weak = kind == "weak"
    columns: list[ColumnOf[ScalingRow] | None] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        texts("Baseline", "baseline", baseline_id),
        integers("N", "world_size", lambda row: row.cell.world_size),
        integers("b", "local_batch", lambda row: row.cell.batch_size),
        integers("B", "global_batch", lambda row: row.cell.global_batch),
        estimates("Scaled speed-up" if weak else "Strong-scaling speed-up", "speedup", lambda row: row.speedup),
        estimates("Efficiency", "efficiency", lambda row: row.efficiency, "%"),
        numbers("Epoch-time ratio", "epoch_time_ratio", lambda row: row.epoch_time_ratio),
        None if weak else estimates("Serial fraction (Karp–Flatt)", "karp_flatt", _serial_fraction),
        integers("Blocks", "blocks", lambda row: row.speedup.estimate.samples if row.speedup else None),
        prose("Remark", "remark", _remark),
    ]
    rows = (row for row in analysis.scaling if row.kind == kind)
    ours = "N·t₁(b)/t_N(b), the local batch b fixed" if weak else "t₁(B)/t_N(B/N), the global batch B fixed"
    note = (
        f"Speed-up: {ours}; efficiency: this over N. Epoch-time ratio: T₁/T_N over the same samples, which by "
        "the identity of method §6 already is the speed-up: multiplying it by N would count the workers twice. "
        f"{'' if weak else SERIAL_NOTE}Blocks: the turns behind the interval.{chosen_note(analysis, kind)}"
    )
    return table_of(f"{kind}-scaling", f"{kind.capitalize()} scaling", columns, rows, note)


def machine_table(analysis: StudyAnalysis) -> Table:
    """Several workers against one that has the cores of all of them (method.md §6)."""
    columns: list[ColumnOf[ScalingRow]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        texts("One worker", "baseline", baseline_id),
        estimates("Samples/s ÷ its", "on_machine", lambda row: row.speedup),
        prose("Remark", "remark", _remark),
    ]
    note = (
        "One worker with all cores, at its best batch: "
        "what this machine does without further workers. The speed-up below is that of workers with a core each, as "
        "several machines or GPUs would bring them. The interval of the fastest allows for its having been picked "
        f"(method §6, §8). {OWN_LOOP}"
    )
    rows = rows_against_all_cores(analysis).values()
    return table_of("on-machine", "On this machine", columns, rows, note)


def serial_table(analysis: StudyAnalysis) -> Table:
    """The fits of Amdahl and Gustafson (method.md §6)."""
    columns: list[ColumnOf[SerialFraction]] = [
        texts("Scaling", "kind", lambda fit: fit.kind),
        texts("Strategy", "strategy", lambda fit: fit.strategy),
        ColumnOf("Fixed batch", ("batch",), align="left", value=_fixed_batch),
        texts("World sizes", "world_sizes", lambda fit: ", ".join(str(n) for n in fit.world_sizes)),
        texts("Law", "law", lambda fit: fit.law),
        numbers("Serial fraction", "serial_fraction", lambda fit: fit.value),
    ]
    note = "Least-squares fit over all world sizes of a strategy; below 0: better than linear (method §6)."
    return table_of("serial-fraction", "Serial fraction", columns, analysis.serial_fractions, note)


def epoch_table(analysis: StudyAnalysis) -> Table:
    """Compute and communication per epoch, measured and inferred (method.md §7)."""
    columns: list[ColumnOf[EpochSplit]] = [
        texts("Cell", "cell", lambda split: split.cell_id),
        texts("Baseline", "baseline", lambda split: split.baseline_id),
        numbers("Epoch T_N", "epoch_s", lambda split: split.epoch_s, "s"),
        numbers("Compute, inferred", "inferred_compute_s", lambda split: split.inferred_compute_s, "s"),
        numbers("Communication, inferred", "inferred_comm_s", lambda split: split.inferred_comm_s, "s"),
        numbers("Compute, measured", "measured_compute_s", lambda split: split.measured_compute_s, "s"),
        numbers("Exposed communication, measured", "measured_exposed_s", _exposed_s, "s"),
        numbers("All communication, measured", "measured_comm_s", lambda split: split.measured_comm_s, "s"),
        numbers("Inferred − exposed", "difference_s", _difference_s, "s"),
    ]
    note = (
        "Inferred: compute = T₁/N and communication = T_N − T₁/N, the classic subtraction; it blames all that is "
        "slower with N workers on the network. Measured: the shares of the step. The last column is what the "
        "subtraction blames wrongly. Where communication is absent, its copies are inside torch and stand in "
        "compute. An epoch is D/B steps over all training samples, not rounded (method §6, §7)."
    )
    return table_of("epoch", "Compute and communication per epoch", columns, analysis.epoch_splits, note)


def _serial_fraction(row: ScalingRow) -> Estimate | None:
    """A serial fraction; absent where its whole interval lies above 1: one worker is faster, and none explains that."""
    fraction = row.karp_flatt
    faster_alone = fraction is not None and fraction.low is not None and fraction.low > 1
    return None if faster_alone else fraction


def _remark(row: ScalingRow) -> str | None:
    return row.withheld or ("not timed in turn with its baseline" if row.speedup and not row.speedup.paired else None)


def _fixed_batch(fit: SerialFraction) -> Entry:
    return Entry(f"{'b' if fit.kind == 'weak' else 'B'} = {fit.batch}", (fit.batch,))


def _exposed_s(split: EpochSplit) -> float | None:
    return None if split.measured_comm_s is None else split.measured_exposed_s


def _difference_s(split: EpochSplit) -> float | None:
    return None if split.measured_comm_s is None else split.difference_s


def efficiency_table(found: Comparison, name: str, title: str, rule: Words | None = None) -> Table:
    """A row for each cell; `rule` says its recipe, where cells differ in it."""
    columns: list[ColumnOf[Efficiency] | None] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        prose("Learning-rate rule", "rule", lambda row: rule(row.cell)) if rule else None,
        ColumnOf("Samples to the target", ("samples",), value=_samples),
        estimates("Statistical efficiency", "statistical_efficiency", lambda row: row.statistical),
        prose("To the target", "verdict", lambda row: row.verdict),
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
    others = [row for row in found.rows if row.verdict != "baseline"]
    said = [f"{rule(row.cell)} (B = {row.cell.global_batch:,}): {_in_words(row)}" for row in others]
    return f"{_target(found)} {'; '.join(said)}." if said else ""


def _in_words(row: Efficiency) -> str:
    if row.statistical is None:
        return row.remark or row.verdict
    words = f"statistical efficiency {estimate_text(row.statistical)}, {row.verdict}"
    if row.time_to_accuracy is None:
        return f"{words}, no time-to-accuracy speed-up"
    return f"{words}, time-to-accuracy speed-up {estimate_text(row.time_to_accuracy)}"


def assumption_table(analysis: StudyAnalysis) -> Table:
    """One row for each wrong assumption that would change a number of this study."""
    columns: list[ColumnOf[Assumption]] = [
        texts("Mistake", "mistake", lambda each: each.mistake),
        prose("Where", "where", lambda each: each.where),
        prose("Correct", "ours", lambda each: each.ours),
        prose("With the mistake", "other", lambda each: each.other),
        prose("Why it is one", "why", lambda each: each.why),
        texts("Rule of `worldsize audit`", "rule", lambda each: each.rule),
    ]
    found = assumptions(analysis.record, analysis.cells, analysis.scaling)
    return table_of("assumptions", "Common mistakes with these numbers", columns, found)
