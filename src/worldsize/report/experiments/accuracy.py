"""Part 2 of experiment C: loss and accuracy per epoch for each learning-rate rule (method.md §10)."""

from collections.abc import Callable

import altair as alt

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.analysis.training import Efficiency, EpochAnalysis, efficiencies, epochs
from worldsize.report.result_tables import CELL, PERCENT
from worldsize.report.svg import Chart, Drawing, Size, draw, pointed_lines, values
from worldsize.report.tables import Column, Table, integer, number, text

BASELINE = "baseline"


def histories(analysis: StudyAnalysis) -> dict[str, list[EpochAnalysis]]:
    """Epochs of each cell that was begun."""
    return {name: epochs(cell) for name, cell in analysis.run.cells.items()}


def rule(cell: CellAnalysis) -> str:
    """The recipe of a cell, in words."""
    settings = cell.record.settings if cell.record else None
    if settings is None:
        return cell.label
    scaling = {"none": "no rule", "linear": "linear in B/B₀", "sqrt": "square root of B/B₀"}[settings.lr_scaling]
    warm = f", warm-up over {settings.lr_warmup_epochs:g} epoch(s)" if settings.lr_warmup_epochs else ""
    return f"{scaling}{warm}" if cell.label != BASELINE else "base batch"


def epochs_table(analysis: StudyAnalysis) -> Table:
    """Training and test, loss and accuracy, per epoch."""
    columns = (
        CELL,
        Column("Learning-rate rule", ("rule",), align="prose"),
        Column("B", ("global_batch",)),
        Column("Epoch", ("epoch",)),
        Column("Samples seen", ("samples",)),
        Column("Training loss", ("train_loss",)),
        Column("Training accuracy", ("train_accuracy",), "%"),
        Column("Test loss", ("test_loss",)),
        Column("Test accuracy", ("test_accuracy",), "%"),
        Column("Remark", ("remark",), align="prose"),
    )
    found = histories(analysis)
    rows = tuple(
        (
            text(cell.id),
            text(rule(cell)),
            integer(cell.global_batch),
            integer(epoch.epoch),
            integer(epoch.samples),
            number(epoch.train_loss),
            number(epoch.train_accuracy, PERCENT),
            number(epoch.test_loss),
            number(epoch.test_accuracy, PERCENT),
            text(cell.reason if epoch is found[cell.id][-1] else None),
        )
        for cell in analysis.cells
        for epoch in found.get(cell.id, [])
    )
    settings, data = analysis.record.settings, analysis.record.data
    note = (
        f"D = {data.train_samples:,} training and {data.test_samples:,} test samples. {settings.optimizer_name} at "
        f"learning rate {settings.learning_rate:g} for B₀ = {settings.base_batch}. Training numbers are means over the "
        "epoch, while the weights change."
    )
    return Table("c4-epochs", "C(4) Loss and accuracy per epoch", columns, rows, note)


def efficiency_table(analysis: StudyAnalysis) -> Table:
    """Statistical efficiency and the speed-up of the time to an accuracy."""
    columns = (
        CELL,
        Column("Learning-rate rule", ("rule",), align="prose"),
        Column("Samples to the target", ("samples",)),
        Column("Statistical efficiency", ("statistical_efficiency",)),
        Column("Throughput ratio", ("throughput_ratio",)),
        Column("Time-to-accuracy speed-up", ("time_to_accuracy_speedup",)),
    )
    found = found_efficiencies(analysis)
    rows = tuple(
        (
            text(each.cell.id),
            text(rule(each.cell)),
            integer(each.samples),
            number(each.statistical),
            number(each.throughput),
            number(each.time_to_accuracy),
        )
        for each in found
    )
    target = percent_text(found[0].target) if found else "–"
    note = (
        f"Target: {target} test accuracy, the largest that every evaluated run reached, known to whole epochs. "
        "Statistical efficiency: samples to it at the baseline ÷ here; time-to-accuracy speed-up: throughput ratio × "
        "that (method §10). Throughputs are of whole epochs, without intervals here."
    )
    return Table("c5-efficiency", "C(5) Statistical efficiency and time to accuracy", columns, rows, note)


def found_efficiencies(analysis: StudyAnalysis) -> list[Efficiency]:
    """Against the cell of one worker."""
    baseline = next((cell for cell in analysis.cells if cell.world_size == 1), None)
    allowed = analysis.record.settings.allow_oversubscribed
    return efficiencies(analysis.cells, histories(analysis), baseline, allow_oversubscribed=allowed) if baseline else []


def accuracy_paragraph(analysis: StudyAnalysis) -> str:
    """How the rules compare after the last epoch."""
    found = histories(analysis)
    said = [_ending(cell, found[cell.id][-1]) for cell in analysis.cells if found.get(cell.id)]
    if not said:
        return ""
    return (
        f"Test accuracy after the last epoch: {'; '.join(said)}. A larger batch takes fewer "
        f"steps over the same samples: {_steps(analysis)}."
    )


def _ending(cell: CellAnalysis, last: EpochAnalysis) -> str:
    """How a run ended: its accuracy and epoch, or why it has none."""
    name = f"{rule(cell)} (B = {cell.global_batch:,})"
    if last.test_accuracy is None:
        return f"{name} none ({cell.reason or 'not evaluated'})"
    return f"{name} {percent_text(last.test_accuracy)} after {last.epoch}"


def _steps(analysis: StudyAnalysis) -> str:
    counts = {
        cell.global_batch: cell.record.steps_per_epoch
        for cell in analysis.cells
        if cell.record and cell.record.steps_per_epoch
    }
    return ", ".join(f"{number_text(steps)} per epoch at B = {batch:,}" for batch, steps in counts.items())


def accuracy_charts(analysis: StudyAnalysis) -> tuple[Drawing, ...]:
    """Test accuracy and training loss against the epoch, a line per rule."""
    found = histories(analysis)
    lines = {f"{rule(cell)}, B = {cell.global_batch}": found[cell.id] for cell in analysis.cells if cell.id in found}
    made = (
        _chart("c-test-accuracy", "C. Test accuracy against epoch", "Test accuracy (%)", lines, _accuracy),
        _chart("c-training-loss", "C. Training loss against epoch", "Training loss", lines, lambda e: e.train_loss),
    )
    return tuple(drawing for drawing in made if drawing is not None)


def _accuracy(epoch: EpochAnalysis) -> float | None:
    return None if epoch.test_accuracy is None else PERCENT * epoch.test_accuracy


def _chart(
    name: str,
    title: str,
    label: str,
    lines: dict[str, list[EpochAnalysis]],
    value: Callable[[EpochAnalysis], float | None],
) -> Drawing | None:
    rows: list[dict[str, float | str]] = [
        {"epoch": epoch.epoch, "y": y, "rule": line}
        for line, history in lines.items()
        for epoch in history
        if (y := value(epoch)) is not None
    ]
    if not rows:
        return None
    description = f"{label} against epoch, one line for each of {len(lines)} runs; table C(4) has the numbers."
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
