"""What B and C share: speed-up by both definitions, the epoch's split, bandwidth utilisation, a paragraph."""

from dataclasses import replace

from worldsize.analysis.numbers import GB, estimate_text, number_text, percent_text
from worldsize.analysis.scaling import ScalingRow
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.utilisation import utilisations
from worldsize.report.comm_tables import PEAK_NOTE, link_peak
from worldsize.report.fact_tables import MB
from worldsize.report.result_tables import CELL, MS
from worldsize.report.scaling_tables import epoch_table
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, ratio, text


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
    columns = (
        CELL,
        Column("N", ("world_size",)),
        Column("b", ("local_batch",)),
        Column("B", ("global_batch",)),
        Column("Step", interval_keys("step_s"), "ms"),
        Column("Epoch T_N", ("epoch_s",), "s"),
        Column("Scaled speed-up (weak: b fixed)", interval_keys("scaled_speedup")),
        Column("against", ("weak_baseline",), align="left"),
        Column("Speed-up (strong: B fixed)", interval_keys("strong_speedup")),
        Column("against", ("strong_baseline",), align="left"),
        Column("Remark", ("remark",), align="prose"),
    )
    rows = tuple(_speedup_row(analysis, number_) for number_ in range(len(analysis.cells)))
    note = (
        "Scaled speed-up: N·t₁(b)/t_N(b). Strong: t₁(B)/t_N(B/N), where the study has one worker with b = B. "
        f"T_N: D/B steps over D = {analysis.record.training[1].train_samples:,} samples (method §6)."
    )
    return Table(f"{letter.lower()}1-speedup", f"{letter}(1) Time and speed-up", columns, rows, note)


def _speedup_row(analysis: StudyAnalysis, index: int) -> tuple[Entry, ...]:
    cell = analysis.cells[index]
    weak, strong = _row(analysis, "weak", cell.id), _row(analysis, "strong", cell.id)
    step_s = cell.summary.step_s if cell.summary else None
    epoch_s = step_s.value * analysis.record.training[1].train_samples / cell.global_batch if step_s else None
    remarks = [cell.reason, weak.withheld if weak and weak.withheld != cell.reason else None]
    return (
        text(cell.id),
        *(integer(value) for value in (cell.world_size, cell.batch_size, cell.global_batch)),
        estimate(step_s, MS),
        number(epoch_s),
        ratio(weak.speedup if weak else None),
        text(weak.baseline.id if weak and weak.baseline else None),
        ratio(strong.speedup if strong else None),
        text(strong.baseline.id if strong and strong.baseline else None),
        text("; ".join(part for part in remarks if part)),
    )


def _row(analysis: StudyAnalysis, kind: str, cell_id: str) -> ScalingRow | None:
    return next((row for row in analysis.scaling if row.kind == kind and row.cell.id == cell_id), None)


def utilisation_table(analysis: StudyAnalysis, letter: str) -> Table:
    """Bandwidth utilisation with its formula and volumes."""
    columns = (
        CELL,
        Column("Bytes per step", ("step_bytes",), "MB"),
        Column("Formula", ("formula",), align="prose"),
        Column("Steps per epoch", ("steps_per_epoch",)),
        Column("Bytes per epoch", ("epoch_bytes",), "GB"),
        Column("Transfer per epoch, measured", ("transfer_s",), "s"),
        Column("Utilisation, measured", ("measured_bytes_per_s",), "GB/s"),
        Column("Communication per epoch, inferred", ("inferred_s",), "s"),
        Column("Utilisation, inferred", ("inferred_bytes_per_s",), "GB/s"),
        Column("Link, measured", ("link_peak_bytes_per_s",), "GB/s"),
        Column("Link, rated", ("link_payload_bytes_per_s",), "GB/s"),
    )
    rows = []
    for found in utilisations(analysis.cells, analysis.epoch_splits, analysis.record.training[1].train_samples):
        peak = link_peak(analysis, found.cell)
        link = analysis.links.get(found.cell.world_size) if peak else None
        rows.append(
            (
                text(found.cell.id),
                number(found.step_bytes, MB),
                text(found.formula),
                number(found.steps_per_epoch),
                number(found.epoch_bytes, 1 / GB),
                number(found.transfer_s),
                number(found.measured_bytes_per_s, 1 / GB),
                number(found.inferred_s),
                number(found.inferred_bytes_per_s, 1 / GB),
                number(peak, 1 / GB),
                number(link.payload_bytes_per_s if link else None, 1 / GB),
            )
        )
    note = (
        "Utilisation: steps per epoch × bytes per step ÷ communication per epoch. Bytes: what the busiest rank sends "
        "(it receives as many). Measured: ÷ the time in which messages are transferred. Inferred: ÷ (T_N − T₁/N), "
        f"absent where that is not above 0. Epochs are those of {letter}(2): D/B steps. {PEAK_NOTE} The time of "
        "data-parallel is that of both directions, one after the other, over the bytes of one (method §4, §5, §7). "
        "1 GB = 1e9 bytes."
    )
    title = f"{letter}(3) Bandwidth utilisation"
    return Table(f"{letter.lower()}3-bandwidth", title, columns, tuple(rows), note)


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
        "and the same bytes are exchanged for fewer samples."
    )
