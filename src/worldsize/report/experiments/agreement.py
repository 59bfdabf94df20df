"""Part 3 of experiment C: what travels besides gradients, and what happens where something is not agreed on."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.study import StudyAnalysis
from worldsize.report.columns import PERCENT, ColumnOf, integers, numbers, prose, table_of, texts
from worldsize.report.tables import Entry, Table, text
from worldsize.results.training_records import Evaluation

MAX_RANKS = 8
"""Ranks whose accuracies are listed one by one."""
CASES = {
    "agreed": "nothing",
    "without-sampler-epoch": "sampler.set_epoch is not called",
    "without-initial-weights": "each rank draws its own initial weights",
    "without-learning-rate": "only rank 0 scales its learning rate",
    "without-buffers": "BatchNorm statistics are not shared",
}


class _Evaluated(NamedTuple):
    cell: CellAnalysis
    test: Evaluation
    before: Evaluation | None
    """The evaluation before it."""


def divergence_table(analysis: StudyAnalysis) -> Table:
    """How far the ranks are apart after each epoch, with one agreement left out at a time."""
    columns: list[ColumnOf[_Evaluated]] = [
        prose("What is left out", "case", lambda row: CASES.get(row.cell.label, row.cell.label)),
        integers("Epoch", "epoch", lambda row: row.test.epoch + 1),
        numbers(
            "Weights apart",
            "weights_divergence",
            lambda row: apart.largest(apart.weights) if (apart := row.test.divergence) else None,
        ),
        numbers(
            "BatchNorm statistics apart",
            "buffers_divergence",
            lambda row: apart.largest(apart.buffers) if (apart := row.test.divergence) else None,
        ),
        numbers("Training loss", "train_loss", _loss),
        numbers("Test accuracy", "test_accuracy", lambda row: row.test.test_accuracy, "%"),
        ColumnOf("of each rank", ("rank_accuracy",), "%", align="prose", value=_of_each_rank),
    ]
    settings, data, _ = analysis.record.training
    note = (
        f"DDP on {data.train_samples:,} training samples, {settings.optimizer_name} at learning rate "
        f"{settings.learning_rate:g}·B/B₀. Apart: the largest |x − x₀| ÷ |x₀| over ranks, x₀ that of rank 0, before "
        "the evaluation; 0 is the same in every bit. DDP "
        "shares the statistics in each forward, so what is apart with everything agreed on is that of the last step. "
        "Where weights differ, each rank runs the whole test set with what it holds."
    )
    return table_of(
        "c7-divergence", "C(7) What breaks when something is not agreed on", columns, _evaluations(analysis.cells), note
    )


def _evaluations(cells: Iterable[CellAnalysis]) -> Iterator[_Evaluated]:
    for cell in cells:
        tests = cell.record.evaluations if cell.record else []
        yield from (_Evaluated(cell, test, before) for before, test in zip([None, *tests], tests, strict=False))


def _loss(row: _Evaluated) -> float | None:
    """The loss of the last step before an evaluation."""
    losses = row.cell.losses.filter(pl.col("step") < row.test.step)["loss"].tail(1).to_list()
    return losses[0] if losses else None


def _of_each_rank(row: _Evaluated) -> Entry:
    values = [PERCENT * each for each in row.test.rank_accuracy or []]
    if len(values) <= MAX_RANKS:
        return text(", ".join(map(number_text, values)) or None)
    return text(f"{number_text(min(values))} to {number_text(max(values))} over {len(values):,} ranks")


def order_table(analysis: StudyAnalysis) -> Table:
    """The order of the labels in each epoch, with and without a sampler that is told its epoch."""
    columns: list[ColumnOf[_Evaluated]] = [
        prose("Sampler", "case", lambda row: CASES[row.cell.label]),
        integers("Epoch", "epoch", lambda row: row.test.epoch + 1),
        texts("Digest of the order", "order", lambda row: row.test.order),
        texts("Same as the epoch before", "repeated", _repeated),
    ]
    cells = (cell for cell in analysis.cells if cell.label in ("agreed", "without-sampler-epoch"))
    note = "Digest of the labels on rank 0, in the order in which they were trained on (method §10)."
    return table_of("c8-order", "C(8) The order of the samples", columns, _evaluations(cells), note)


def _repeated(row: _Evaluated) -> str | None:
    """Whether the samples came in the order of the epoch before."""
    if row.before is None or row.before.order is None:
        return None
    return "yes" if row.test.order == row.before.order else "no"


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
