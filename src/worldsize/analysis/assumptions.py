"""Where the classic way of counting and the right one differ: ours, the other number, and why it is not it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from worldsize.analysis.audit.known import NETWORKS
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text
from worldsize.analysis.scaling import ScalingRow
from worldsize.results.records import StudyRecord
from worldsize.results.training_records import DataRecord, ModelRecord


@dataclass(frozen=True)
class Assumption:
    """One number that is often printed and is another one than it claims."""

    mistake: str
    rule: str
    """Which rule of `worldsize audit` finds it in a table."""
    where: str
    ours: str
    other: str
    why: str


def assumptions(study: StudyRecord, cells: Sequence[CellAnalysis], scaling: Sequence[ScalingRow]) -> list[Assumption]:
    """Those that apply to what was measured."""
    several = [cell for cell in cells if cell.world_size > 1 and cell.summary and cell.record and cell.record.wire]
    largest = max(several, key=lambda cell: (cell.world_size, cell.batch_size), default=None)
    found = list(_twice(scaling))
    if largest is not None and study.model is not None and study.data is not None:
        found += [*_volumes(largest, study.model, study.data), _steps(largest, study.data)]
    found += [*_classes(study), *_cut(study, cells)]
    return found


def _twice(scaling: Sequence[ScalingRow]) -> Iterator[Assumption]:
    rows = [row for row in scaling if row.kind == "weak" and row.speedup and row.cell.world_size > 1]
    if not rows:
        return
    row = max(rows, key=lambda row: row.speedup.estimate.value if row.speedup else 0.0)
    assert row.speedup is not None
    value, n = row.speedup.estimate.value, row.cell.world_size
    yield Assumption(
        "N counted twice in a speed-up",
        "speedup",
        row.cell.id,
        f"{number_text(value)} = T₁/T_N",
        f"{number_text(n * value)} = N·T₁/T_N",
        "The ratio of epoch times over the same data already is N·t₁/t_N; times N counts the workers twice.",
    )


def _volumes(cell: CellAnalysis, model: ModelRecord, data: DataRecord) -> Iterator[Assumption]:
    assert cell.record is not None
    assert cell.record.wire is not None
    step, steps = cell.record.wire.busiest_rank_bytes, data.train_samples / cell.global_batch
    yield Assumption(
        "One synchronisation counted for a whole epoch",
        "bandwidth",
        cell.id,
        f"{number_text(step * steps / 1e9)} GB per epoch",
        f"{number_text(step / 1e9)} GB",
        f"Gradients travel in each of the {_count(steps)} steps of an epoch.",
    )
    elements = cell.record.wire.payload_bytes * model.parameters // model.parameter_bytes
    yield Assumption(
        "Elements taken for bytes",
        "bandwidth",
        cell.id,
        f"{number_text(cell.record.wire.payload_bytes / 1e6)} MB of gradients",
        f"{number_text(elements / 1e6)} MB",
        f"Each of the {elements:,} elements has {model.parameter_bytes // model.parameters} bytes.",
    )


def _steps(cell: CellAnalysis, data: DataRecord) -> Assumption:
    return Assumption(
        "Steps per epoch not divided by N",
        "steps-per-epoch",
        cell.id,
        f"{_count(data.train_samples / cell.global_batch)} steps",
        f"{_count(data.train_samples / cell.batch_size)} steps",
        f"A step takes B = {cell.batch_formula} = {cell.global_batch} samples, not b = {cell.batch_size}.",
    )


def _count(steps: float) -> str:
    """Steps of an epoch, D/B, which are not rounded (method.md §1)."""
    return f"{steps:,.0f}" if steps.is_integer() else number_text(steps)


def _classes(study: StudyRecord) -> Iterator[Assumption]:
    model, data = study.model, study.data
    other = _with_thousand_classes(model, data.classes) if model and data else None
    if model is not None and data is not None and other is not None and other != model.parameters:
        yield Assumption(
            "Parameters of the 1000-class model",
            "parameters",
            model.name,
            f"{model.parameters:,}",
            f"{other:,}",
            f"Counted in the model that was trained: {data.classes} classes, and layers for small images.",
        )


def _with_thousand_classes(model: ModelRecord, classes: int) -> int | None:
    """Parameters of the model of the same name for 224×224 images and 1000 classes, as torchvision counts them."""
    if model.name not in NETWORKS:
        return None
    variants = NETWORKS[model.name].variants
    own = [name for name, (body, inputs) in variants.items() if body + classes * (inputs + 1) == model.parameters]
    normalised = any("BatchNorm" in name for name in own)
    for name, (body, inputs) in variants.items():
        if name.startswith("ImageNet") and ("BatchNorm" in name) is normalised:
            return body + 1000 * (inputs + 1)
    return None


def _cut(study: StudyRecord, cells: Sequence[CellAnalysis]) -> Iterator[Assumption]:
    if not study.asked.sweep or not cells:
        return
    last = max(cells, key=lambda cell: cell.batch_size)
    settings, data, _ = study.training
    next_batch, share = last.batch_size * settings.growth, data.train_samples // (last.world_size * last.accumulate)
    if next_batch > share:
        yield Assumption(
            "A batch larger than the data set",
            "batch-above-data",
            f"{last.strategy}, N = {last.world_size}",
            f"not run: a worker has {share:,} samples",
            f"b = {next_batch:,}",
            f"A loader would silently cut it to {share:,}, and the time would be printed beside the wrong b.",
        )
