"""Part 2 of experiment C: loss and accuracy per epoch for each learning-rate rule (method.md §10)."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.efficiency import Comparison
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.training import EpochAnalysis
from worldsize.report.columns import PERCENT, ColumnOf, integers, numbers, prose, table_of, texts
from worldsize.report.svg import Chart, Drawing, Size, draw, pointed_lines, values
from worldsize.report.tables import Table

BASELINE = "baseline"


def rule(cell: CellAnalysis) -> str:
    """The recipe of a cell, in words."""
    settings = cell.record.settings if cell.record else None
    if settings is None:
        return cell.label
    scaling = {"none": "no rule", "linear": "linear in B/B₀", "sqrt": "square root of B/B₀"}[settings.lr_scaling]
    warm = f", warm-up over {settings.lr_warmup_epochs:g} epoch(s)" if settings.lr_warmup_epochs else ""
    return f"{scaling}{warm}" if cell.label != BASELINE else "base batch"


class _Epoch(NamedTuple):
    cell: CellAnalysis
    seed: int
    epoch: EpochAnalysis
    last: bool


def epochs_table(found: Comparison) -> Table:
    """Training and test, loss and accuracy, per epoch and seed."""
    columns: list[ColumnOf[_Epoch]] = [
        texts("Cell", "cell", lambda row: row.cell.id),
        prose("Learning-rate rule", "rule", lambda row: rule(row.cell)),
        integers("B", "global_batch", lambda row: row.cell.global_batch),
        integers("Seed", "seed", lambda row: row.seed),
        integers("Epoch", "epoch", lambda row: row.epoch.epoch),
        integers("Samples seen", "samples", lambda row: row.epoch.samples),
        numbers("Training loss", "train_loss", lambda row: row.epoch.train_loss),
        numbers("Training accuracy", "train_accuracy", lambda row: row.epoch.train_accuracy, "%"),
        numbers("Test loss", "test_loss", lambda row: row.epoch.test_loss),
        numbers("Test accuracy", "test_accuracy", lambda row: row.epoch.test_accuracy, "%"),
        prose("Remark", "remark", lambda row: row.cell.reason if row.last else None),
    ]
    rows = (
        _Epoch(cell, seed, epoch, epoch is history[cell.id][-1])
        for seed, analysis, history in zip(found.seeds, found.trainings, found.histories, strict=True)
        for cell in analysis.cells
        for epoch in history.get(cell.id, [])
    )
    record = found.trainings[0].record
    settings, data, _ = record.training
    note = (
        f"D = {data.train_samples:,} training and {data.test_samples:,} test samples. {settings.optimizer_name} at "
        f"learning rate {settings.learning_rate:g} for B₀ = {settings.base_batch}. Training numbers are means over the "
        "epoch, while the weights change."
    )
    return table_of("c4-epochs", "C(4) Loss and accuracy per epoch", columns, rows, note)


def accuracy_paragraph(found: Comparison) -> str:
    """How the rules compare after the last epoch."""
    said = [_ending(cell, lines) for cell, lines in _of_cells(found) if lines]
    if not said:
        return ""
    return (
        f"Test accuracy after the last epoch: {'; '.join(said)}. A larger batch takes fewer "
        f"steps over the same samples: {_steps(found.trainings[0])}."
    )


def _of_cells(found: Comparison) -> Iterator[tuple[CellAnalysis, list[list[EpochAnalysis]]]]:
    """Each cell of the first seed, and its epochs with each seed with which it was begun."""
    for cell in found.trainings[0].cells:
        yield cell, [history[cell.id] for history in found.histories if history.get(cell.id)]


def _ending(cell: CellAnalysis, lines: list[list[EpochAnalysis]]) -> str:
    """How a cell ended: its mean accuracy, with that of its best and worst seed, or why it has none."""
    name = f"{rule(cell)} (B = {cell.global_batch:,})"
    last = [line[-1].test_accuracy for line in lines]
    known = [accuracy for accuracy in last if accuracy is not None]
    if len(known) < len(last):
        return f"{name} none ({cell.reason or 'not evaluated'})"
    apart = f" ({percent_text(min(known))} to {percent_text(max(known))}, {len(known)} seeds)" if known[1:] else ""
    return f"{name} {percent_text(sum(known) / len(known))} after {lines[0][-1].epoch}{apart}"


def _steps(analysis: StudyAnalysis) -> str:
    counts = {
        cell.global_batch: cell.record.steps_per_epoch
        for cell in analysis.cells
        if cell.record and cell.record.steps_per_epoch
    }
    return ", ".join(f"{number_text(steps)} per epoch at B = {batch:,}" for batch, steps in counts.items())


def accuracy_charts(found: Comparison) -> tuple[Drawing, ...]:
    """Test accuracy and training loss against the epoch, a line per rule: the mean over the seeds."""
    lines = {
        f"{rule(cell)}, B = {cell.global_batch}": [epoch for line in histories for epoch in line]
        for cell, histories in _of_cells(found)
        if histories
    }
    mean = f", mean over {len(found.seeds)} seeds" if found.seeds[1:] else ""
    made = (
        _chart("c-test-accuracy", f"C. Test accuracy against epoch{mean}", "Test accuracy (%)", lines, _accuracy),
        _chart("c-training-loss", f"C. Training loss against epoch{mean}", "Training loss", lines, _loss),
    )
    return tuple(drawing for drawing in made if drawing is not None)


def _loss(epoch: EpochAnalysis) -> float | None:
    return epoch.train_loss


def _accuracy(epoch: EpochAnalysis) -> float | None:
    return None if epoch.test_accuracy is None else PERCENT * epoch.test_accuracy


def _chart(
    name: str,
    title: str,
    label: str,
    lines: dict[str, list[EpochAnalysis]],
    value: Callable[[EpochAnalysis], float | None],
) -> Drawing | None:
    rows: list[dict[str, float | str]] = []
    for line, history in lines.items():
        known: dict[int, list[float]] = {}
        for epoch in history:
            if (y := value(epoch)) is not None:
                known.setdefault(epoch.epoch, []).append(y)
        rows += [{"epoch": number, "y": sum(ys) / len(ys), "rule": line} for number, ys in sorted(known.items())]
    if not rows:
        return None
    description = f"{label} against epoch, one line for each of {len(lines)} rules; table C(4) has the numbers."
    return draw(name, title, description, lambda size: _drawn(rows, label, size), table="c4-epochs")


def _drawn(rows: list[dict[str, float | str]], label: str, size: Size) -> Chart:
    legend = alt.Legend(title=None, orient="top", columns=max(1, size.legend_columns // 2), offset=32, labelLimit=330)
    palette = alt.Scale(range=["#999999", "#D55E00", "#E69F00", "#0072B2"])
    ticks = sorted({float(row["epoch"]) for row in rows})
    base = alt.Chart(values(rows)).encode(
        x=alt.X("epoch:Q", title="Epoch", axis=alt.Axis(values=ticks, format="d", grid=False)),
        y=alt.Y("y:Q", title=label, scale=alt.Scale(zero=False)),
        color=alt.Color("rule:N", scale=palette, legend=legend),
    )
    return pointed_lines(base, size)
