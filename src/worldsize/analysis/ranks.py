"""What each rank of a cell saw: its loss, its accuracy, its step time; every step once."""

from dataclasses import dataclass

import polars as pl

from worldsize.results.folder import Cell


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
    return [
        _rank(int(str(key[0])), frame, steps)
        for key, frame in training_steps(cell).group_by("rank", maintain_order=True)
    ]


def training_steps(cell: Cell) -> pl.DataFrame:
    """Each step of training of each rank once: the newest session that has it counts."""
    return (
        cell.steps.sort("rank", "session", "step")
        .unique(["rank", "step"], keep="last", maintain_order=True)
        .sort("rank", "step")
    )


def step_times(cell: Cell) -> pl.DataFrame:
    """Step and the time (s) at which its slowest rank ended it, all steps of training."""
    return training_steps(cell).group_by("step").agg(pl.col("step_s").max()).sort("step")


def _rank(rank: int, frame: pl.DataFrame, steps: tuple[int, ...]) -> RankAnalysis:
    by_step = dict(zip(frame["step"].to_list(), frame["loss"].to_list(), strict=True))
    return RankAnalysis(
        rank=rank,
        loss_at={step: by_step.get(step - 1) for step in steps},
        mean_loss=_mean(frame["loss"]),
        mean_accuracy=_mean(frame["accuracy"]),
        step_s=_mean(frame.filter(pl.col("step") > 0)["step_s"]),
    )


def _mean(column: pl.Series) -> float | None:
    value = column.mean()
    return float(value) if isinstance(value, int | float) else None
