"""How well a cell has learned, epoch by epoch, and where it came to a target accuracy (method.md §10)."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.ranks import training_steps
from worldsize.results.folder import Cell
from worldsize.results.training_records import Evaluation


@dataclass(frozen=True)
class EpochAnalysis:
    """One epoch of a cell; losses and accuracies are means over the samples of all ranks."""

    epoch: int
    """Counted from 1."""
    samples: int
    """Training samples that the model has seen by the end of it."""
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None


@dataclass(frozen=True)
class Crossing:
    """Where a training first came to a target accuracy."""

    samples: float | None
    """Training samples until then; None where `why` says what is not known."""
    why: str = ""


def epochs(cell: Cell) -> list[EpochAnalysis]:
    """Every epoch that was begun."""
    weight = pl.col("samples")
    frame = (
        training_steps(cell, "epoch", "samples", "loss", "accuracy")
        .group_by("epoch")
        .agg(
            weight.sum().alias("seen"),
            *(_mean(name) for name in ("loss", "accuracy")),
        )
        .sort("epoch")
    )
    tests = {evaluation.epoch: evaluation for evaluation in cell.record.evaluations}
    found, seen = [], 0
    for epoch, samples, loss, accuracy in frame.select("epoch", "seen", "loss", "accuracy").iter_rows():
        seen += samples
        test: Evaluation | None = tests.get(epoch)
        found.append(
            EpochAnalysis(
                epoch=epoch + 1,
                samples=seen,
                train_loss=loss,
                train_accuracy=accuracy,
                test_loss=test.test_loss if test else None,
                test_accuracy=test.test_accuracy if test else None,
            )
        )
    return found


def _mean(name: str) -> pl.Expr:
    """The mean over samples; absent where a step of the epoch has no value, such as a loss that was not finite."""
    weight = pl.col("samples")
    mean = (pl.col(name) * weight).sum() / weight.sum()
    return pl.when(pl.col(name).is_not_null().all()).then(mean).alias(name)


def common_target(histories: Sequence[Sequence[EpochAnalysis]]) -> float | None:
    """The largest test accuracy that every run that was evaluated has reached; None without one."""
    best = [
        max((e.test_accuracy for e in history if e.test_accuracy is not None), default=None) for history in histories
    ]
    reached = [accuracy for accuracy in best if accuracy is not None]
    return min(reached, default=None)


def crossing(history: Sequence[EpochAnalysis], target: float) -> Crossing:
    """Where the straight line between two evaluations first comes to the target (method.md §10).

    No number where the target was never reached, or at a moment before the first evaluation that was not seen.
    """
    seen = [(each.samples, each.test_accuracy) for each in history if each.test_accuracy is not None and each.samples]
    if not seen:
        return Crossing(None, "not evaluated")
    place = next((place for place, (_, accuracy) in enumerate(seen) if accuracy >= target), None)
    if place is None:
        return Crossing(None, "not reached")
    samples, accuracy = seen[place]
    if accuracy == target:
        return Crossing(float(samples))
    if place == 0:
        return Crossing(None, "reached before the first evaluation")
    before, below = seen[place - 1]
    return Crossing(before + (samples - before) * (target - below) / (accuracy - below))
