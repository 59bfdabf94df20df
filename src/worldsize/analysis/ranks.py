"""What each rank of a cell saw: its loss, its accuracy, its step time, and the parts of its step (method.md §2)."""

from dataclasses import dataclass

import polars as pl

from worldsize.analysis.communication import Communication
from worldsize.analysis.parts import with_parts
from worldsize.analysis.timeline_step import drawn_ranks
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS
from worldsize.results.samples import goes_back

MAX_ROWS = 16


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


@dataclass(frozen=True)
class RankParts:
    """One rank: the mean of each part over its timed steps, in seconds."""

    rank: int
    role: str
    """`works longest`, `median`, `works least`, or nothing."""
    parts_s: dict[str, float]
    wait_s: float | None = None
    """Of its communication, until the last rank has issued a message; None where no message was seen."""
    transfer_s: float | None = None

    @property
    def step_s(self) -> float:
        """Its mean step."""
        return sum(self.parts_s.values())


@dataclass(frozen=True)
class CellRanks:
    """The ranks of a cell that are shown, in order."""

    cell_id: str
    ranks: tuple[RankParts, ...]
    of: int
    """How many ranks there are."""

    @property
    def chosen(self) -> bool:
        """Whether some ranks are left out."""
        return len(self.ranks) < self.of


def rank_parts(cell: Cell, sent: Communication | None = None, scale: float = 1.0) -> CellRanks | None:
    """The ranks of a cell with their parts; None for a cell of one process, or without a timed step.

    `sent` is its communication, if there is any: the wait and transfer of each rank. Parts are times `scale`, which
    makes them those of the printed step (method.md §8).
    """
    means = cell.collect(
        with_parts(cell).filter("timed").group_by("rank").agg(pl.col("step_s", *PARTS).mean()).sort("rank")
    )
    if means.height < 2 or means["other_s"].has_nulls():
        return None
    order = means.sort(pl.col("step_s") - pl.col("exposed_sync_s"), "rank", descending=[True, False])["rank"]
    roles = {order[0]: "works longest", order[-1]: "works least"}
    if means.height > 2:
        roles = {order[round((means.height - 1) / 2)]: "median", **roles}
    chosen = means.filter(pl.col("rank").is_in(drawn_ranks(means, MAX_ROWS)))
    waits = {} if sent is None else {rank: times for rank, *times in sent.by_rank.iter_rows()}
    rows = tuple(
        RankParts(
            row["rank"],
            roles.get(row["rank"], ""),
            {part: scale * row[part] for part in PARTS if row[part] is not None},
            *waits.get(row["rank"], ()),
        )
        for row in chosen.iter_rows(named=True)
    )
    return CellRanks(cell.record.id, rows, means.height)
