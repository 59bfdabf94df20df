"""The tables of scaling: speed-ups, serial fractions, and compute and communication per epoch."""

from worldsize.analysis.scaling import Kind, ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.result_tables import CELL, PERCENT, chosen_note
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, ratio, text
from worldsize.results.records import Estimate

SERIAL_NOTE = (
    "Serial fraction: the one fraction that would explain this point alone, its interval that of the speed-up; none "
    "does where one worker is faster. "
)


def scaling_table(analysis: StudyAnalysis, kind: Kind) -> Table:
    """Weak (same local batch) or strong (same global batch) scaling (method.md §6)."""
    weak = kind == "weak"
    columns = (
        CELL,
        Column("Baseline", ("baseline",), align="left"),
        Column("N", ("world_size",)),
        Column("b", ("local_batch",)),
        Column("B", ("global_batch",)),
        Column("Scaled speed-up" if weak else "Strong-scaling speed-up", interval_keys("speedup")),
        Column("Efficiency", interval_keys("efficiency"), "%"),
        Column("Epoch-time ratio", ("epoch_time_ratio",)),
        *(() if weak else (Column("Serial fraction (Karp–Flatt)", interval_keys("karp_flatt")),)),
        Column("Blocks", ("blocks",)),
        Column("Remark", ("remark",), align="prose"),
    )
    rows = tuple(_scaling_row(row) for row in analysis.scaling if row.kind == kind)
    ours = "N·t₁(b)/t_N(b), the local batch b fixed" if weak else "t₁(B)/t_N(B/N), the global batch B fixed"
    note = (
        f"Speed-up: {ours}; efficiency: this over N. Epoch-time ratio: T₁/T_N over the same samples, which by "
        "the identity of method §6 already is the speed-up: multiplying it by N would count the workers twice. "
        f"{'' if weak else SERIAL_NOTE}Blocks: the turns behind the interval.{chosen_note(analysis, kind)}"
    )
    return Table(f"{kind}-scaling", f"{kind.capitalize()} scaling", columns, rows, note)


def serial_table(analysis: StudyAnalysis) -> Table:
    """The fits of Amdahl and Gustafson (method.md §6)."""
    columns = (
        Column("Scaling", ("kind",), align="left"),
        Column("Strategy", ("strategy",), align="left"),
        Column("Fixed batch", ("batch",), align="left"),
        Column("World sizes", ("world_sizes",), align="left"),
        Column("Law", ("law",), align="left"),
        Column("Serial fraction", ("serial_fraction",)),
    )
    rows = tuple(
        (
            text(fit.kind),
            text(fit.strategy),
            Entry(f"{'b' if fit.kind == 'weak' else 'B'} = {fit.batch}", (fit.batch,)),
            text(", ".join(str(n) for n in fit.world_sizes)),
            text(fit.law),
            number(fit.value),
        )
        for fit in analysis.serial_fractions
    )
    note = "Least-squares fit over all world sizes of a strategy; below 0: better than linear (method §6)."
    return Table("serial-fraction", "Serial fraction", columns, rows, note)


def epoch_table(analysis: StudyAnalysis) -> Table:
    """Compute and communication per epoch, measured and inferred (method.md §7)."""
    columns = (
        CELL,
        Column("Baseline", ("baseline",), align="left"),
        Column("Epoch T_N", ("epoch_s",), "s"),
        Column("Compute, inferred", ("inferred_compute_s",), "s"),
        Column("Communication, inferred", ("inferred_comm_s",), "s"),
        Column("Compute, measured", ("measured_compute_s",), "s"),
        Column("Exposed communication, measured", ("measured_exposed_s",), "s"),
        Column("All communication, measured", ("measured_comm_s",), "s"),
        Column("Inferred − exposed", ("difference_s",), "s"),
    )
    rows = tuple(
        (
            text(split.cell_id),
            text(split.baseline_id),
            number(split.epoch_s),
            number(split.inferred_compute_s),
            number(split.inferred_comm_s),
            number(split.measured_compute_s),
            number(None if split.measured_comm_s is None else split.measured_exposed_s),
            number(split.measured_comm_s),
            number(None if split.measured_comm_s is None else split.difference_s),
        )
        for split in analysis.epoch_splits
    )
    note = (
        "Inferred: compute = T₁/N and communication = T_N − T₁/N, the classic subtraction; it blames all that is "
        "slower with N workers on the network. Measured: the shares of the step. The last column is what the "
        "subtraction blames wrongly. Where communication is absent, its copies are inside torch and stand in "
        "compute. An epoch is D/B steps over all training samples, not rounded (method §6, §7)."
    )
    return Table("epoch", "Compute and communication per epoch", columns, rows, note)


def _scaling_row(row: ScalingRow) -> tuple[Entry, ...]:
    cell, speedup = row.cell, row.speedup
    return (
        text(cell.id),
        text(row.baseline.id if row.baseline else None),
        *(integer(value) for value in (cell.world_size, cell.batch_size, cell.global_batch)),
        ratio(row.speedup),
        ratio(row.efficiency, PERCENT),
        number(row.epoch_time_ratio),
        *(() if row.kind == "weak" else (_serial_entry(row.karp_flatt),)),
        integer(speedup.estimate.samples if speedup else None),
        text(row.withheld or ("not timed in turn with its baseline" if speedup and not speedup.paired else None)),
    )


def _serial_entry(fraction: Estimate | None) -> Entry:
    """A serial fraction; absent above 1, where one worker is faster and no fraction explains it."""
    return estimate(fraction if fraction is None or fraction.value <= 1 else None)
