"""The tables of scaling: speed-ups, serial fractions, and compute and communication per epoch."""

from worldsize.analysis.breakdown import EpochSplit
from worldsize.analysis.scaling import Kind, ScalingRow, SerialFraction
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, estimates, integers, numbers, prose, table_of, texts
from worldsize.report.result_tables import baseline_id, chosen_note
from worldsize.report.tables import Entry, Table
from worldsize.results.records import Estimate

SERIAL_NOTE = (
    "Serial fraction: the one fraction that would explain this point alone, its interval that of the speed-up; none "
    "does where one worker is faster. "
)


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
    """A serial fraction; absent above 1, where one worker is faster and no fraction explains it."""
    fraction = row.karp_flatt
    return fraction if fraction is None or fraction.value <= 1 else None


def _remark(row: ScalingRow) -> str | None:
    return row.withheld or ("not timed in turn with its baseline" if row.speedup and not row.speedup.paired else None)


def _fixed_batch(fit: SerialFraction) -> Entry:
    return Entry(f"{'b' if fit.kind == 'weak' else 'B'} = {fit.batch}", (fit.batch,))


def _exposed_s(split: EpochSplit) -> float | None:
    return None if split.measured_comm_s is None else split.measured_exposed_s


def _difference_s(split: EpochSplit) -> float | None:
    return None if split.measured_comm_s is None else split.difference_s
