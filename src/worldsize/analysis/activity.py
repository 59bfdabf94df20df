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
    "collecting": "Of it, collecting garbage",
    "queueing": "Of it, waiting for a core",
    "computing": "Of it, computing",
    "idle": "Of it, neither computing nor waiting for a core",
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
    """One row per session, block and rank: `steps`, and COLUMNS per step (s); None where nobody told.

    Nor for a GPU, whose kernels the thread does not compute.
    """
    record = cell.record
    if not record.activities or record.placement is None or record.placement.device != "cpu":
        return None
    rows = [
        {"session": block.session, "block": block.block, "rank": rank, "steps": each.steps}
        | {name: None if (value := getattr(each, name)) is None else value / each.steps for name in COLUMNS}
        for block in record.activities
        for rank, each in enumerate(block.ranks)
    ]
    whole = dict.fromkeys((*BLOCK, "rank", "steps"), pl.Int64)
    return pl.DataFrame(rows, schema={**whole, **dict.fromkeys(COLUMNS, pl.Float64)})


def spent(times: pl.DataFrame, others: pl.DataFrame, more: Estimate) -> Spent | None:
    """What most of the `more` seconds per step is used for that these threads take longer than the others.

    Both frames are of `thread_times`, and are averaged over ranks, block by block; None where nothing is most of it.
    """
    columns = pl.col("steps", *COLUMNS).mean()
    own = times.group_by(*BLOCK, maintain_order=True).agg(columns)
    theirs = others.group_by(*BLOCK, maintain_order=True).agg(columns)
    both = own.join(theirs, on=BLOCK, suffix="_others", maintain_order="left")
    if both.is_empty():
        return None
    uses: dict[Use, pl.Expr] = {
        "collecting": _difference("collected_s"),
        "queueing": _difference("queued_s"),
        "computing": _difference("cpu_s"),
        "idle": more.value - _difference("cpu_s") - _difference("queued_s"),
    }
    faults = both.select((_difference("major_faults") * STEPS).sum() / STEPS.sum()).item() or 0.0
    for use, seconds in uses.items():
        found = per_step(both, seconds)
        if found is not None and found.low is not None and found.low > 0 and found.value > MOSTLY * more.value:
            return Spent(use, found, faults)
    return None


def _difference(name: str) -> pl.Expr:
    return pl.col(name) - pl.col(f"{name}_others")
