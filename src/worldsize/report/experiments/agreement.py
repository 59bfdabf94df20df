"""Part 3 of experiment C: what travels besides gradients, and what happens where something is not agreed on."""

from collections.abc import Iterator, Sequence

import polars as pl

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.result_tables import PERCENT
from worldsize.report.tables import Column, Entry, Table, integer, number, text
from worldsize.results.records import Evaluation

MOST_RANKS = 8
"""Ranks whose accuracies are listed one by one."""
CASES = {
    "agreed": "everything is agreed on",
    "without-sampler-epoch": "the sampler is not told its epoch",
    "without-initial-weights": "each rank draws its own first weights",
    "without-learning-rate": "only rank 0 scales its learning rate",
    "without-buffers": "BatchNorm statistics are not shared",
}


def divergence_table(analysis: StudyAnalysis) -> Table:
    """How far the ranks are apart after each epoch, with one agreement left out at a time."""
    columns = (
        Column("What is left out", ("case",), align="prose"),
        Column("Epoch", ("epoch",)),
        Column("Weights apart", ("weights_divergence",)),
        Column("BatchNorm statistics apart", ("buffers_divergence",)),
        Column("Training loss", ("train_loss",)),
        Column("Test accuracy", ("test_accuracy",), "%"),
        Column("of each rank", ("rank_accuracy",), "%", align="prose"),
    )
    rows = tuple(_divergence_row(cell, test) for cell, test in _evaluations(analysis))
    settings, data, _ = analysis.record.training
    note = (
        f"DDP on {data.train_samples:,} training samples, {settings.optimizer_name} at learning rate "
        f"{settings.learning_rate:g}·B/B₀. Apart: the largest |x − x₀| ÷ |x₀| over ranks, x₀ that of rank 0, before "
        "the evaluation; 0 is the same in every bit. DDP "
        "shares the statistics in each forward, so what is apart with everything agreed on is that of the last step. "
        "Where weights differ, each rank runs the whole test set with what it holds."
    )
    return Table("c7-divergence", "C(7) What breaks when something is not agreed on", columns, rows, note)


def _evaluations(analysis: StudyAnalysis) -> Iterator[tuple[CellAnalysis, Evaluation]]:
    for cell in analysis.cells:
        for test in cell.record.evaluations if cell.record else []:
            yield cell, test


def _divergence_row(cell: CellAnalysis, test: Evaluation) -> tuple[Entry, ...]:
    apart = test.divergence
    by_rank = _by_rank([PERCENT * each for each in test.rank_accuracy or []])
    losses = cell.losses.filter(pl.col("step") < test.step)["loss"].tail(1).to_list()
    return (
        text(CASES.get(cell.label, cell.label)),
        integer(test.epoch + 1),
        number(apart.largest(apart.weights) if apart else None),
        number(apart.largest(apart.buffers) if apart else None),
        number(losses[0] if losses else None),
        number(test.test_accuracy, PERCENT),
        text(by_rank or None),
    )


def _by_rank(values: Sequence[float]) -> str:
    if len(values) <= MOST_RANKS:
        return ", ".join(number_text(each) for each in values)
    return f"{number_text(min(values))} to {number_text(max(values))} over {len(values):,} ranks"


def order_table(analysis: StudyAnalysis) -> Table:
    """The order of the labels in each epoch, with and without a sampler that is told its epoch."""
    columns = (
        Column("Sampler", ("case",), align="prose"),
        Column("Epoch", ("epoch",)),
        Column("Digest of the order", ("order",), align="left"),
        Column("Same as the epoch before", ("repeated",), align="left"),
    )
    rows = []
    for cell in analysis.cells:
        if cell.label not in ("agreed", "without-sampler-epoch") or cell.record is None:
            continue
        before: str | None = None
        for test in cell.record.evaluations:
            same = None if before is None else "yes" if test.order == before else "no"
            rows.append((text(CASES[cell.label]), integer(test.epoch + 1), text(test.order), text(same)))
            before = test.order
    note = "Digest of the labels on rank 0, in the order in which they were trained on (method §10)."
    return Table("c8-order", "C(8) The order of the samples", columns, tuple(rows), note)


def agreement_paragraphs(analysis: StudyAnalysis) -> list[str]:
    """Whether exchanging gradients is enough, from what was measured."""
    last = {
        cell.label: cell.record.evaluations[-1] for cell in analysis.cells if cell.record and cell.record.evaluations
    }
    said = []
    for label, test in last.items():
        if test.divergence is None or label == "agreed":
            continue
        weights, buffers = (
            test.divergence.largest(each) for each in (test.divergence.weights, test.divergence.buffers)
        )
        if test.divergence.apart:
            said.append(f"where {CASES[label]}, the ranks' weights end {percent_text(weights)} apart")
        elif buffers and label == "without-buffers":
            said.append(
                f"where {CASES[label]}, the weights stay the same and the statistics end {percent_text(buffers)} apart"
            )
    agreed = last.get("agreed")
    if not said or agreed is None or agreed.divergence is None:
        return []
    worst = number_text(agreed.divergence.largest(agreed.divergence.weights))
    kept = f"{worst} apart" if agreed.divergence.apart else "no bit apart"
    return [
        "Exchanging gradients alone is not enough: the same gradients only keep equal weights equal. With everything "
        f"agreed on, the ranks end {kept}; {'; '.join(said)}."
    ]
