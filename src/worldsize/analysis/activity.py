"""What becomes of the time that some threads take longer than others: computing, a queue for a core, garbage, or none.

The ranks tell it block by block (measure/activity.py), for the thread that trains (method.md §8).
"""

from dataclasses import dataclass
from typing import Literal

import polars as pl

from worldsize.analysis.steps import BLOCK, STEPS, per_step
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

Use = Literal["collecting", "queueing", "computing", "idle"]
"""Collecting garbage; waiting for a core; computing, in Python or an operator; none of these, as in a sleep, or waiting
for a disk, a lock, the network or another process."""
USES: dict[Use, str] = {
    "collecting": "Of what it takes longer, collecting garbage",
    "queueing": "Of what it takes longer, waiting for a core",
    "computing": "Of what it takes longer, computing",
    "idle": "Of what it takes longer, neither computing nor waiting for a core",
}
MOSTLY = 0.5
"""Share of the time that one use must be to be named."""
COLUMNS = ("cpu_s", "queued_s", "collected_s", "major_faults")


@dataclass(frozen=True)
class Spent:
    """What most of some time was used for."""

    use: Use
    seconds: Estimate
    """Per step."""
    major_faults: float
    """Pages per step from a disk, more than the others."""


def thread_times(cell: Cell) -> pl.DataFrame | None:
    """One row per session, block and rank: `steps`, `most_collected_s`, and COLUMNS per step (s); None if not known.

    It is not of a GPU, whose kernels the thread does not compute, nor where one process drives several workers. Where
    a worker has several threads the others may be what this one waits for: then `queued_s` is null, and idleness is not
    told from a queue.
    """
    record, placement = cell.record, cell.record.placement
    if not record.activities or placement is None or placement.device != "cpu":
        return None
    if placement.processes != record.world_size:
        return None
    alone = placement.threads_per_worker == 1
    rows = [
        {
            **{"session": each.session, "block": each.block, "rank": rank, "steps": each.steps},
            "cpu_s": cpu_s / each.steps,
            "queued_s": None if queued_s is None or not alone else queued_s / each.steps,
            "collected_s": collected_s / each.steps,
            "most_collected_s": most_s,
            "major_faults": faults / each.steps,
        }
        for each in record.activities
        if each.steps > 0  # a file may say anything
        for rank, (cpu_s, queued_s, collected_s, most_s, faults) in enumerate(
            zip(each.cpu_s, each.queued_s, each.collected_s, each.most_collected_s, each.major_faults, strict=False)
        )
    ]
    whole = dict.fromkeys((*BLOCK, "rank", "steps"), pl.Int64)
    return pl.DataFrame(rows, schema={**whole, **dict.fromkeys((*COLUMNS, "most_collected_s"), pl.Float64)})


def spent(times: pl.DataFrame, others: pl.DataFrame, more: pl.DataFrame) -> Spent | None:
    """What most of the time is used for that these threads take longer than the others; None where nothing is.

    The first two frames are of `thread_times`, and are averaged over ranks; `more` has that time by block (`more_s`,
    seconds per step).
    """
    columns = pl.col("steps", *COLUMNS).mean()
    own = times.group_by(*BLOCK, maintain_order=True).agg(columns)
    theirs = others.group_by(*BLOCK, maintain_order=True).agg(columns)
    both = own.join(theirs, on=BLOCK, suffix="_others").join(more.select(*BLOCK, "more_s"), on=BLOCK).sort(*BLOCK)
    whole = per_step(both, pl.col("more_s")) if both.height else None
    if whole is None:
        return None
    uses: dict[Use, pl.Expr] = {
        "collecting": _difference("collected_s"),
        "queueing": _difference("queued_s"),
        "computing": _difference("cpu_s"),
        "idle": pl.col("more_s") - _difference("cpu_s") - _difference("queued_s"),
    }
    faults = both.select((_difference("major_faults") * STEPS).sum() / STEPS.sum()).item() or 0.0
    for use, seconds in uses.items():
        found = per_step(both, seconds)
        if found is not None and found.low is not None and found.low > 0 and found.value > MOSTLY * whole.value:
            return Spent(use, found, faults)
    return None


def _difference(name: str) -> pl.Expr:
    return pl.col(name) - pl.col(f"{name}_others")
