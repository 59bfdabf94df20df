"""The tables around the times: bytes on the wire, loss and accuracy, warnings, provenance."""

import shlex
from collections.abc import Iterator, Sequence

from worldsize.analysis.numbers import GB, gib_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.result_tables import CELL, PERCENT
from worldsize.report.tables import Column, Table, integer, number, text
from worldsize.results.code_records import SHOWN
from worldsize.results.records import Provenance, StudyRecord

MB = 1e-6
LAST_STEPS = 10
"""Steps behind the training loss that is printed: one step's loss depends on its batch."""


def wire_table(analysis: StudyAnalysis) -> Table:
    """Bytes per step on the wire, by the formulas of method.md §4."""
    columns = (
        CELL,
        Column("Payload S", ("payload_bytes",), "MB"),
        Column("Busiest rank sends", ("busiest_rank_bytes",), "MB"),
        Column("Every other rank sends", ("other_rank_bytes",), "MB"),
        Column("Formula", ("formula",), align="prose"),
        Column("Steps per epoch", ("steps_per_epoch",)),
        Column("Busiest rank, per epoch", ("busiest_rank_bytes_per_epoch",), "GB"),
    )
    rows = []
    for cell in analysis.cells:
        if cell.record is None or cell.record.wire is None or cell.world_size == 1:
            continue  # between one worker and itself nothing travels: absent, not 0
        wire, steps = cell.record.wire, cell.record.steps_per_epoch
        rows.append(
            (
                text(cell.id),
                number(wire.payload_bytes, MB),
                number(wire.busiest_rank_bytes, MB),
                number(wire.other_rank_bytes, MB),
                text(wire.formula),
                integer(steps),
                number(None if steps is None else steps * wire.busiest_rank_bytes, 1 / GB),
            )
        )
    note = (
        "Per step, by formula (method §4); a rank receives as many bytes as it sends. S: bytes of all gradients that "
        "are exchanged. Steps per epoch: floor(D/B), the last partial batch is dropped. 1 MB = 1e6 bytes."
    )
    return Table("wire", "Bytes on the wire", columns, tuple(rows), note)


def accuracy_table(analysis: StudyAnalysis) -> Table:
    """Training loss, and test loss and accuracy after the last evaluation."""
    columns = (
        CELL,
        Column("B", ("global_batch",)),
        Column("Steps", ("steps",)),
        Column("Training loss", ("train_loss",)),
        Column("Test loss", ("test_loss",)),
        Column("Test accuracy", ("test_accuracy",), "%"),
        Column("Test samples", ("test_samples",)),
        Column("Epochs begun", ("epochs_begun",)),
        Column("Evaluated after step", ("evaluated_after_step",)),
    )
    rows = []
    for cell in analysis.cells:
        last = cell.record.evaluations[-1] if cell.record and cell.record.evaluations else None
        if last is None and cell.losses.is_empty():
            continue
        tail = cell.losses["loss"].tail(LAST_STEPS).mean()
        rows.append(
            (
                text(cell.id),
                integer(cell.global_batch),
                integer(cell.losses.height or None),
                number(tail if isinstance(tail, float) else None),
                number(last.test_loss if last else None),
                number(last.test_accuracy if last else None, PERCENT),
                integer(last.test_samples if last else None),
                integer(last.epoch + 1 if last else None),
                integer(last.step if last else None),
            )
        )
    note = f"Training loss: mean of the last {LAST_STEPS} steps, warm-up steps count."
    if len({cell.global_batch for cell in analysis.cells}) > 1:
        note += (
            " The global batch B differs between rows, and so do the samples that were seen after the same number of "
            "steps."
        )
    return Table("accuracy", "Loss and accuracy", columns, tuple(rows), note)


def warnings_table(analysis: StudyAnalysis) -> Table:
    """Each warning once, with all places where it was seen."""
    columns = (
        Column("Warning", ("code",), align="left"),
        Column("Seen in", ("where",), align="prose"),
        Column("What it means", ("message",), align="prose"),
    )
    places: dict[tuple[str, str], list[str]] = {}
    for where, warning in analysis.warnings:
        seen = places.setdefault((warning.code, warning.message), [])
        if where not in seen:
            seen.append(where)
    rows = tuple((text(code), text(", ".join(seen)), text(message)) for (code, message), seen in places.items())
    return Table("warnings", "Warnings", columns, rows)


def provenance_table(analysis: StudyAnalysis) -> Table:
    """Where the numbers come from (method.md §11)."""
    columns = (Column("What", ("what",), align="left"), Column("Value", ("value",), align="prose"))
    rows = tuple((text(what), text(value)) for what, value in _provenance(analysis))
    return Table("provenance", "Provenance", columns, rows, "Method §11.")


def _provenance(analysis: StudyAnalysis) -> Iterator[tuple[str, str | None]]:
    study = analysis.record
    yield from _session(study.provenance)
    if study.settings is not None:
        yield from _training(study)
    for number_, session in enumerate(study.sessions, start=1):
        yield f"Session {number_} (--resume)", f"{session.created}: {shlex.join(session.command)}"


def _training(study: StudyRecord) -> Iterator[tuple[str, str | None]]:
    settings, data, model = study.training
    shape, flops = "×".join(str(size) for size in data.shape), model.flops_per_sample
    yield "Data", f"{data.name}: {data.train_samples:,} training and {data.test_samples:,} test samples of {shape}"
    yield "Data verification", f"{data.verification}, {data.location}" if data.location else data.verification
    yield "Model", f"{model.name}: {model.parameters:,} parameters in {model.gradient_tensors} gradient tensors"
    yield "Operations per sample", f"{flops:.3g} floating-point operations, forward and backward" if flops else None
    rate = f"{settings.optimizer_name} at learning rate {settings.learning_rate:g}"
    yield "Training", f"{rate}, {settings.precision}, seed {settings.seed}, loader {settings.loader}"


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
