"""What a strategy does to the training: losses and accuracies of two cells after the same samples (method.md §10).

All cells of a study begin with the same weights and see the same samples in the same order, so two cells are paired.
What would come with another seed is asked, so the seed is the unit of an interval.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from worldsize.analysis.statistics import mean_estimate
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

LAST = 0.25
"""Share of the common samples over whose steps the loss is taken: one step's loss depends on its batch, and in the
first ones hardly anything is learned yet."""
Pair = tuple[Cell, Cell]
"""A cell and the one that it is held against, trained with the same seed."""


@dataclass(frozen=True)
class LossDifference:
    """Training loss of a cell − that of another, over the last quarter of the samples that both have seen."""

    samples: int
    """Of all workers, with each seed."""
    estimate: Estimate | None
    """Mean over the seeds, with Student's interval; None where the loss of either is not finite."""
    not_finite: bool
    """Whether that of the cell is not, and that of the other is."""


@dataclass(frozen=True)
class AccuracyDifference:
    """Test accuracy of a cell − that of another after the same epochs."""

    epochs: int
    estimate: Estimate


def training_losses(cell: Cell) -> pl.DataFrame:
    """The steps of its longest training: samples of all workers up to each (`seen`), its own, and their mean loss.

    A training of whole epochs is one, over all sessions. Otherwise each launch begins anew with the first weights and
    the first batch. A loss is null where that of a rank was not finite. No row for a rehearsal, which has no loss.
    """
    steps = cell.scan_steps()
    if cell.record.replayed is not None:
        steps = steps.clear()
    mean = (pl.col("loss") * pl.col("samples")).sum() / pl.col("samples").sum()
    known = pl.when(pl.col("loss").is_not_null().all()).then(mean)
    each = [] if cell.record.of_epochs else ["session", "launch"]
    world = cell.collect(
        steps.group_by(*each, "step").agg(pl.col("samples").sum(), known.alias("loss"), pl.len().alias("ranks"))
    ).sort(*each, "step")
    world = world.filter(pl.col("ranks") == pl.col("ranks").max())  # one that not every rank has written was cut short
    if each and not world.is_empty():
        sums = world.group_by(each, maintain_order=True).agg(pl.col("samples").sum().alias("all"))
        longest = sums.sort("all", descending=True, maintain_order=True).head(1)
        world = world.join(longest, on=each, how="semi", maintain_order="left")
    return world.select(pl.col("samples").cum_sum().alias("seen"), "samples", "loss")


def loss_difference(pairs: Sequence[Pair]) -> LossDifference | None:
    """By how much the loss of the first of each pair is higher; None where they have no samples in common, or no loss.

    With several seeds as many samples of each count.
    """
    losses = [(training_losses(cell), training_losses(other)) for cell, other in pairs]
    samples = min((int(each["samples"].sum()) for pair in losses for each in pair), default=0)
    found = [(_at_the_end(cell, samples), _at_the_end(other, samples)) for cell, other in losses]
    if not samples or any(other is None for _, other in found):
        return None
    differences = [own - other for own, other in found if own is not None and other is not None]
    whole = len(differences) == len(found)
    return LossDifference(samples, mean_estimate(differences) if whole else None, not_finite=not whole)


def _at_the_end(losses: pl.DataFrame, samples: int) -> float | None:
    """Mean loss over the last quarter of the first so many samples; None where one of its steps has none."""
    last = losses.filter((pl.col("seen") > (1 - LAST) * samples) & (pl.col("seen") <= samples))
    if last.is_empty() or last["loss"].has_nulls():
        return None
    return float(np.average(last["loss"].to_numpy(), weights=last["samples"].to_numpy()))


def accuracy_difference(pairs: Sequence[Pair]) -> AccuracyDifference | None:
    """Test accuracy of the first of each pair − that of the second, after the last epoch that all have evaluated.

    None where there is no such epoch, or no whole epochs were trained: cells that are timed have unlike numbers of
    steps behind them.
    """
    if not pairs or not all(each.record.of_epochs for pair in pairs for each in pair):
        return None
    tested = [[_by_epoch(each) for each in pair] for pair in pairs]
    common = set.intersection(*(set(each) for pair in tested for each in pair))
    if not common:
        return None
    last = max(common)
    return AccuracyDifference(last + 1, mean_estimate([own[last] - other[last] for own, other in tested]))


def _by_epoch(cell: Cell) -> dict[int, float]:
    return {each.epoch: each.test_accuracy for each in cell.record.evaluations}
