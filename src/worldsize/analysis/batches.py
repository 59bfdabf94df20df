"""Batches of a loop of the user's own: unlike from rank to rank, or from begin to end of a run (method.md §13)."""

from dataclasses import dataclass

import polars as pl

from worldsize.analysis.steps import steps_of_ranks
from worldsize.results.folder import Cell

UNLIKE = 0.01
"""Share by which ranks differ before it is said; a smaller last batch of an epoch makes less."""
TREND = 0.1
"""Share by which the first and the last quarter of the steps differ before it is said."""


@dataclass(frozen=True)
class Batches:
    """Samples per step, as they were counted."""

    by_rank: tuple[float, ...]
    """Mean of each rank, in their order."""
    first: float
    """Mean of a rank in the first quarter of the timed steps."""
    last: float
    """The same in the last quarter."""

    @property
    def unlike(self) -> bool:
        """Whether ranks have other batches than their peers."""
        return max(self.by_rank) > (1 + UNLIKE) * min(self.by_rank)

    @property
    def trend(self) -> bool:
        """Whether batches became larger or smaller."""
        return abs(self.last / self.first - 1) > TREND

    @property
    def text(self) -> str:
        """What each rank has, the first ranks of many."""
        each = [f"rank {rank} {samples:,.4g}" for rank, samples in enumerate(self.by_rank[:8])]
        return f"{', '.join(each)}{' …' if len(self.by_rank) > len(each) else ''}"


def batches_of(cell: Cell) -> Batches | None:
    """The batches of a loop of the user's own; None where the settings say them, or without a timed step."""
    settings = cell.record.settings
    if settings is not None and settings.program is None:
        return None
    steps = cell.collect(steps_of_ranks(cell, "session", "step", "rank", "samples"))
    if steps.is_empty():
        return None
    by_rank = steps.group_by("rank").agg(pl.col("samples").mean()).sort("rank")["samples"]
    by_step = steps.group_by("session", "step").agg(pl.col("samples").mean()).sort("session", "step")["samples"]
    quarter = max(1, by_step.len() // 4)
    return Batches(tuple(by_rank.to_list()), float(by_step.head(quarter).mean()), float(by_step.tail(quarter).mean()))  # type: ignore[arg-type]
