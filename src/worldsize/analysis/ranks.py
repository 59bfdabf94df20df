"""What each rank of a cell saw: its loss, its accuracy, its step time; every step once."""

from dataclasses import dataclass

import polars as pl

from worldsize.results.folder import Cell
from worldsize.results.samples import goes_back


@dataclass(frozen=True)
class RankAnalysis:
    """One rank, over all steps of training, warm-up included."""

    rank: int
    loss_at: dict[int, float | None]
    """Training loss of its own samples after so many steps."""
    mean_loss: float | None
    mean_accuracy: float | None
    step_s: float | None
    """Mean time of a step without the first; its own, not the slowest rank's."""


def ranks(cell: Cell, steps: tuple[int, ...]) -> list[RankAnalysis]:
    """All ranks in order, with the losses after `steps` steps (counted from 1)."""
    losses = [pl.col("loss").filter(pl.col("step") == step - 1).first().alias(str(step)) for step in steps]
    found = (
        training_steps(cell, "loss", "accuracy", "step_s")
        .group_by("rank", maintain_order=True)
        .agg(pl.col("loss", "accuracy").mean(), pl.col("step_s").filter(pl.col("step") > 0).mean(), *losses)
    )
    return [
        RankAnalysis(
            rank=row["rank"],
            loss_at={step: row[str(step)] for step in steps},
            mean_loss=row["loss"],
            mean_accuracy=row["accuracy"],
            step_s=row["step_s"],
        )
        for row in found.iter_rows(named=True)
    ]


def training_steps(cell: Cell, *columns: str) -> pl.DataFrame:
    """Each step of training of each rank once, with some columns: the newest session that has it counts."""
    names = list(dict.fromkeys(("rank", "session", "step", *columns)))
    steps = cell.step_columns(*names)
    if not goes_back(steps):
        return steps
    return steps.sort("rank", "session", "step").unique(["rank", "step"], keep="last").sort("rank", "step")


def step_times(cell: Cell) -> pl.DataFrame:
    """Step and the time (s) at which its slowest rank ended it, all steps of training."""
    return training_steps(cell, "step_s").group_by("step").agg(pl.col("step_s").max()).sort("step")
