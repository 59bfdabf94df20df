"""The tables around the times: bytes on the wire, loss and accuracy, warnings, provenance."""

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import gib_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import ColumnOf, integers, numbers, prose, table_of, texts
from worldsize.report.result_tables import last_evaluation
from worldsize.report.tables import Table
from worldsize.results.provenance import SHOWN, Provenance
from worldsize.results.records import CellRecord, StudyRecord
from worldsize.results.training_records import Evaluation
from worldsize.wire import WireBytes

LAST_STEPS = 10
"""Steps behind the training loss that is printed: one step's loss depends on its batch."""


def wire_table(analysis: StudyAnalysis) -> Table:
    """Bytes per step on the wire, by the formulas of method.md §4, and per epoch of D/B steps (§1)."""
    samples = analysis.record.train_samples

    def steps(record: CellRecord) -> float | None:
        return None if samples is None else samples / record.global_batch

    def epoch_bytes(record: CellRecord) -> float | None:
        count = steps(record)
        return None if count is None else count * _wire(record).busiest_rank_bytes

    columns: list[ColumnOf[CellRecord]] = [
        texts("Cell", "cell", lambda record: record.id),
        numbers("Payload S", "payload_bytes", lambda record: _wire(record).payload_bytes, "MB"),
        numbers("Busiest rank sends", "busiest_rank_bytes", lambda record: _wire(record).busiest_rank_bytes, "MB"),
        numbers("Every other rank sends", "other_rank_bytes", lambda record: _wire(record).other_rank_bytes, "MB"),
        prose("Formula", "formula", lambda record: _wire(record).formula),
        numbers("Steps per epoch", "steps_per_epoch", steps),
        numbers("Busiest rank, per epoch", "busiest_rank_bytes_per_epoch", epoch_bytes, "GB"),
    ]
    several = (cell.record for cell in analysis.cells if cell.record is not None and cell.world_size > 1)
    records = (record for record in several if record.wire is not None)  # of one worker nothing travels: absent, not 0
    note = (
        "Per step, by formula (method §4); a rank receives as many bytes as it sends. S: bytes of all gradients. "
        "An epoch is D/B steps, not rounded, as in all tables; training drops the last partial batch (method §1). "
        "1 MB = 1e6 bytes."
    )
    return table_of("wire", "Bytes on the wire", columns, records, note)


def _wire(record: CellRecord) -> WireBytes:
    assert record.wire is not None, "only cells with known wire bytes have a row"
    return record.wire


class _Trained(NamedTuple):
    """A cell and its last evaluation."""

    cell: CellAnalysis
    last: Evaluation | None


def accuracy_table(analysis: StudyAnalysis) -> Table:
    """Training loss, and test loss and accuracy after the last evaluation."""
    columns: list[ColumnOf[_Trained]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        integers("B", "global_batch", lambda row: row.cell.global_batch),
        integers("Steps", "steps", lambda row: row.cell.losses.height or None),
        numbers("Training loss", "train_loss", _last_loss),
        numbers("Test loss", "test_loss", lambda row: row.last.test_loss if row.last else None),
        numbers("Test accuracy", "test_accuracy", lambda row: row.last.test_accuracy if row.last else None, "%"),
        integers("Test samples", "test_samples", lambda row: row.last.test_samples if row.last else None),
        integers("Epochs begun", "epochs_begun", lambda row: row.last.epoch + 1 if row.last else None),
        integers("Evaluated after step", "evaluated_after_step", lambda row: row.last.step if row.last else None),
    ]
    rows = (_Trained(cell, last_evaluation(cell)) for cell in analysis.cells)
    note = f"Training loss: mean of the last {LAST_STEPS} steps, warm-up steps included."
    if len({cell.global_batch for cell in analysis.cells}) > 1:
        note += (
            " The global batch B differs between rows, and so do the samples that were seen after the same number of "
            "steps."
        )
    known = (row for row in rows if row.last is not None or not row.cell.losses.is_empty())
    return table_of("accuracy", "Loss and accuracy", columns, known, note)


def _last_loss(row: _Trained) -> float | None:
    tail = row.cell.losses["loss"].tail(LAST_STEPS).mean()
    return tail if isinstance(tail, float) else None


def warnings_table(analysis: StudyAnalysis) -> Table:
    """Each warning once, with all places where it was seen."""
    columns: list[ColumnOf[tuple[str, str, list[str]]]] = [
        texts("Warning", "code", lambda row: row[0]),
        prose("Seen in", "where", lambda row: ", ".join(row[2])),
        prose("What it means", "message", lambda row: row[1]),
    ]
    places: dict[tuple[str, str], list[str]] = {}
    for where, warning in analysis.warnings:
        seen = places.setdefault((warning.code, warning.message), [])
        if where not in seen:
            seen.append(where)
    return table_of("warnings", "Warnings", columns, ((*warning, seen) for warning, seen in places.items()))


def provenance_table(analysis: StudyAnalysis) -> Table:
    """Where the numbers come from (method.md §11)."""
    columns: list[ColumnOf[tuple[str, str | None]]] = [
        texts("What", "what", lambda row: row[0]),
        prose("Value", "value", lambda row: row[1]),
    ]
    return table_of("provenance", "Provenance", columns, _provenance(analysis), "Method §11.")


def _provenance(analysis: StudyAnalysis) -> Iterator[tuple[str, str | None]]:
    study = analysis.record
    yield from _session(study.provenance)
    if study.settings is not None:
        yield from _training(study)
    for number_, session in enumerate(study.sessions, start=1):
        yield f"Session {number_} (--resume)", f"{session.created}: {shlex.join(session.command)}"


def _training(study: StudyRecord) -> Iterator[tuple[str, str | None]]:
    settings, data, model = study.settings, study.data, study.model
    assert settings is not None
    if settings.script:
        yield "Script", "; ".join(settings.script)
    if model is None:
        return
    if data is not None:
        shape = "×".join(str(size) for size in data.shape)
        yield "Data", f"{data.name}: {data.train_samples:,} training and {data.test_samples:,} test samples of {shape}"
        yield "Data verification", f"{data.verification}, {data.location}" if data.location else data.verification
    flops = model.flops_per_sample
    yield "Model", f"{model.name}: {model.parameters:,} parameters in {model.gradient_tensors} gradient tensors"
    yield "Operations per sample", f"{flops:.3g} floating-point operations, forward and backward" if flops else None
    if settings.replay is not None:
        yield "Rehearsal", f"computing replayed from {settings.replay.run}, drawn with seed {settings.seed}"
        return
    compiled = ", compiled by torch.compile" if settings.compile else ""
    if settings.workload is not None:
        own = f"model, batches and loss of {settings.workload}"
        yield "Training", f"{own}, {settings.precision}{compiled}, seed {settings.seed}"
        return
    rate = f"{settings.optimizer_name} at learning rate {settings.learning_rate:g}"
    yield "Training", f"{rate}, {settings.precision}{compiled}, seed {settings.seed}, loader {settings.loader}"


def _session(provenance: Provenance) -> Iterator[tuple[str, str | None]]:
    host = provenance.host
    yield "Created", provenance.created
    yield "Command", shlex.join(provenance.command)
    yield "worldsize", f"{provenance.worldsize_version}, commit {provenance.commit or 'unknown'}"
    code = provenance.user_code
    if code is not None:
        yield "Your code", ", ".join(f"{file.name} ({file.sha256[:SHOWN]})" for file in code.files)
        yield "Commit of your code", code.commit
    yield "Python and torch", f"Python {provenance.python_version}, torch {provenance.torch_version}"
    yield "Host", f"{host.hostname}, {host.system}"
    yield "CPU", f"{host.cpu_model}: {host.physical_cores or 'unknown'} physical and {host.logical_cores} logical cores"
    yield "Allowed cores", _ranges(host.allowed_cores)
    yield "CPU quota", None if host.quota_cores is None else f"{host.quota_cores:g} cores (control groups)"
    yield "Memory", gib_text(host.memory_bytes)
    yield "GPUs", ", ".join(host.gpus) or None
    yield "Load at the start", f"{host.load_1min:.2f}"
    yield "Network interfaces", "; ".join(f"{name}: {', '.join(ips)}" for name, ips in host.interfaces.items()) or None
    yield "TCP congestion control (not of emulated hosts)", host.congestion_control
    yield "Environment", shlex.join(f"{name}={value}" for name, value in provenance.environment.items()) or None


def _ranges(numbers: Sequence[int]) -> str:
    """`0, 2–5`: numbers that follow each other as one range, for machines of a thousand cores."""
    found: list[list[int]] = []
    for each in sorted(numbers):
        if found and each == found[-1][-1] + 1:
            found[-1][1:] = [each]
        else:
            found.append([each])
    return ", ".join(("–" if ends[-1] - ends[0] > 1 else ", ").join(map(str, ends)) for ends in found)
