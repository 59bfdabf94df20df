"""How well a cell has learned, epoch by epoch; statistical efficiency and time to accuracy (method.md §10)."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.ranks import training_steps
from worldsize.results.folder import Cell
from worldsize.results.records import Evaluation


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
class Efficiency:
    """What a cell takes to a target accuracy, against its baseline."""

    cell: CellAnalysis
    target: float
    """Test accuracy that both reach."""
    samples: int
    """Training samples until the first evaluation at or above it."""
    statistical: float
    """Samples to the target at the baseline ÷ samples to it here."""
    throughput: float | None
    """Samples/s here ÷ samples/s of the baseline; None where more threads than cores withhold it (method.md §8)."""

    @property
    def time_to_accuracy(self) -> float | None:
        """Speed-up of the time to the target: throughput ratio × statistical efficiency."""
        return None if self.throughput is None else self.throughput * self.statistical


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


def samples_to(history: Sequence[EpochAnalysis], target: float) -> int | None:
    """Training samples until the first evaluation at or above the target; None if it was never reached."""
    return next((e.samples for e in history if e.test_accuracy is not None and e.test_accuracy >= target), None)


def efficiencies(
    cells: Sequence[CellAnalysis],
    histories: dict[str, list[EpochAnalysis]],
    baseline: CellAnalysis,
    *,
    allow_oversubscribed: bool = False,
) -> list[Efficiency]:
    """Of each cell that has a history, against the baseline, at the largest accuracy that all have reached."""
    target = common_target(list(histories.values()))
    if target is None or baseline.summary is None or baseline.id not in histories:
        return []
    first = samples_to(histories[baseline.id], target)
    found = []
    for cell in cells:
        samples = samples_to(histories[cell.id], target) if cell.id in histories else None
        if samples is None or first is None or cell.summary is None:
            continue
        crowded = (cell.oversubscribed or baseline.oversubscribed) and not allow_oversubscribed
        throughput = None if crowded else cell.summary.samples_per_s.value / baseline.summary.samples_per_s.value
        found.append(Efficiency(cell, target, samples, first / samples, throughput))
    return found
