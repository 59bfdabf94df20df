"""What B and C share: speed-up by both definitions, the epoch's split, bandwidth utilisation, a paragraph."""

from dataclasses import replace

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text, number_text, percent_text
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.statistics import Ratio
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.utilisation import Utilisation, utilisations
from worldsize.report.columns import ColumnOf, estimates, numbers, prose, table_of, texts
from worldsize.report.comm_tables import PEAK_NOTE, link_peak, link_rate, slowest_note
from worldsize.report.result_tables import CELL, SIZES, baseline_id, step_s
from worldsize.report.scaling_tables import epoch_table
from worldsize.report.tables import Table


def tables(analysis: StudyAnalysis, letter: str, strategy: str) -> tuple[Table, ...]:
    """Tables (1) to (3) of an experiment."""
    second = epoch_table(analysis)
    return (
        speedup_table(analysis, letter),
        replace(second, id=f"{letter.lower()}2-epoch", title=f"{letter}(2) {second.title}, {strategy}"),
        utilisation_table(analysis, letter),
    )


def speedup_table(analysis: StudyAnalysis, letter: str) -> Table:
    """Time, and speed-up by both definitions of method.md §6."""
    train_samples = analysis.record.training[1].train_samples
    weak, strong = (
        {row.cell.id: row for row in reversed(analysis.scaling) if row.kind == kind} for kind in ("weak", "strong")
    )
    columns: list[ColumnOf[CellAnalysis]] = [
        CELL,
        *SIZES,
        estimates("Step", "step_s", step_s, "ms"),
        numbers(
            "Epoch T_N",
            "epoch_s",
            lambda cell: step.value * train_samples / cell.global_batch if (step := step_s(cell)) else None,
            "s",
        ),
        estimates("Scaled speed-up (weak: b fixed)", "scaled_speedup", lambda cell: _speedup(weak.get(cell.id))),
        texts("against", "weak_baseline", lambda cell: baseline_id(weak.get(cell.id))),
        estimates("Speed-up (strong: B fixed)", "strong_speedup", lambda cell: _speedup(strong.get(cell.id))),
        texts("against", "strong_baseline", lambda cell: baseline_id(strong.get(cell.id))),
        prose("Remark", "remark", lambda cell: _remark(cell, weak.get(cell.id))),
    ]
    note = (
        "Scaled speed-up: N·t₁(b)/t_N(b). Strong: t₁(B)/t_N(B/N), where the study has one worker with b = B. "
        f"T_N: D/B steps over D = {train_samples:,} samples (method §6)."
    )
    return table_of(f"{letter.lower()}1-speedup", f"{letter}(1) Time and speed-up", columns, analysis.cells, note)


def _speedup(row: ScalingRow | None) -> Ratio | None:
    return row.speedup if row else None


def _remark(cell: CellAnalysis, weak: ScalingRow | None) -> str:
    remarks = [cell.reason, weak.withheld if weak and weak.withheld != cell.reason else None]
    return "; ".join(part for part in remarks if part)


def utilisation_table(analysis: StudyAnalysis, letter: str) -> Table:
    """Bandwidth utilisation with its formula and volumes."""
    columns: list[ColumnOf[Utilisation]] = [
        texts("Cell", "cell", lambda found: found.cell.id),
        numbers("Bytes per step", "step_bytes", lambda found: found.step_bytes, "MB"),
        prose("Formula", "formula", lambda found: found.formula),
        numbers("Steps per epoch", "steps_per_epoch", lambda found: found.steps_per_epoch),
        numbers("Bytes per epoch", "epoch_bytes", lambda found: found.epoch_bytes, "GB"),
        numbers("Transfer per epoch, measured", "transfer_s", lambda found: found.transfer_s, "s"),
        numbers("Utilisation, measured", "measured_bytes_per_s", lambda found: found.measured_bytes_per_s, "GB/s"),
        numbers("Communication per epoch, inferred", "inferred_s", lambda found: found.inferred_s, "s"),
        numbers("Utilisation, inferred", "inferred_bytes_per_s", lambda found: found.inferred_bytes_per_s, "GB/s"),
        numbers("Link, measured", "link_peak_bytes_per_s", lambda found: link_peak(analysis, found.cell), "GB/s"),
        numbers("Link, rated", "link_payload_bytes_per_s", lambda found: _rated(analysis, found.cell), "GB/s"),
    ]
    rows = utilisations(analysis.cells, analysis.epoch_splits, analysis.record.training[1].train_samples)
    note = (
        "Utilisation: steps per epoch × bytes per step ÷ communication per epoch. Bytes: what the busiest rank sends "
        "(it receives as many). Measured: ÷ the time in which messages are transferred. Inferred: ÷ (T_N − T₁/N), "
        f"absent where that is not above 0. Epochs are those of {letter}(2): D/B steps. {PEAK_NOTE} The time of "
        "data-parallel is that of both directions, one after the other, over the bytes of one (method §4, §5, §7). "
        f"1 GB = 1e9 bytes.{slowest_note(analysis, (row.cell for row in rows))}"
    )
    title = f"{letter}(3) Bandwidth utilisation"
    return table_of(f"{letter.lower()}3-bandwidth", title, columns, rows, note)


def _rated(analysis: StudyAnalysis, cell: CellAnalysis) -> float | None:
    """The rate of the link, where anything crosses it."""
    return link_rate(analysis, cell) if link_peak(analysis, cell) else None


def paragraph(analysis: StudyAnalysis) -> str:
    """Which kind of scaling was measured, what the other kind gives on the same data, and why."""
    weak = [row for row in analysis.scaling if row.kind == "weak" and row.cell.world_size > 1 and row.speedup]
    if analysis.kind == "strong":
        return f"The global batch B was kept while workers were added. {_strong(analysis)}"
    if not weak:
        return "No configuration of several workers has a speed-up to print, so no kind of scaling was measured."
    best = max(weak, key=lambda row: row.speedup.estimate.value / row.cell.world_size if row.speedup else 0.0)
    assert best.speedup is not None
    assert best.baseline is not None
    said = (
        "The local batch b was kept while workers were added, so what was measured is weak scaling: "
        f"{best.cell.id} reaches a scaled speed-up of {estimate_text(best.speedup.estimate)} over {best.baseline.id} "
        "(the ratio of samples/s, and of epoch times over the same data)."
    )
    return f"{said} {_strong(analysis)}"


def _strong(analysis: StudyAnalysis) -> str:
    rows = [row for row in analysis.scaling if row.kind == "strong" and row.speedup and row.baseline]
    if not rows:
        return (
            "Strong scaling, with the global batch B kept, cannot be read from these cells: there is no worker alone "
            "with b = B. It would give less wherever a worker is slower per sample at a smaller b."
        )
    row = max(rows, key=lambda row: row.cell.global_batch)
    assert row.speedup is not None
    assert row.baseline is not None
    said = (
        f"Strong scaling from the same data, the global batch of {row.cell.global_batch} kept: {row.cell.id} reaches "
        f"{estimate_text(row.speedup.estimate)} over {row.baseline.id}."
    )
    return f"{said} {_why(analysis, row)}"


def _why(analysis: StudyAnalysis, row: ScalingRow) -> str:
    """Why the two kinds differ: what a smaller local batch costs one worker per sample."""
    assert row.baseline is not None
    large = row.baseline
    small = next((c for c in analysis.cells if c.world_size == 1 and c.batch_size == row.cell.batch_size), None)
    if small is None or small.summary is None or large.summary is None:
        return "The two differ by what a smaller local batch costs each worker per sample."
    rate = small.summary.samples_per_s.value / large.summary.samples_per_s.value
    return (
        f"The two differ by what a smaller local batch costs each worker per sample: one worker reaches "
        f"{number_text(small.summary.samples_per_s.value)} samples/s at b = {small.batch_size}, "
        f"{percent_text(rate)} of its {number_text(large.summary.samples_per_s.value)} at b = {large.batch_size}; "
        "and the same bytes travel for fewer samples."
    )
