"""What makes some steps of a cell longer than its typical one, again and again (method.md §8)."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.steps import timed_steps
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellSummary, WarningRecord

NOTABLE = 0.05
"""Share by which the mean step may exceed the typical one before it is said."""
LONG = 1.25
"""A step that takes this many times the typical one is a long one."""
REGULAR = 0.75
"""Share of the distances between long steps that must be the usual one for it to be told as a period."""
NAMES = {
    "data_wait_s": "waiting for data",
    "copy_s": "copying to the device",
    "forward_s": "the forward pass",
    "backward_s": "the backward pass",
    "exposed_sync_s": "exposed communication",
    "optimizer_s": "the optimizer",
    "other_s": "work outside the named parts",
}


def recurring_warning(cell: Cell, summary: CellSummary) -> Iterator[WarningRecord]:
    """Where elapsed time ÷ steps is more than 5 % above the median step: what the long steps are made of."""
    typical_s, mean_s = summary.typical_step_s, summary.step_s.value
    if typical_s is None or mean_s <= (1 + NOTABLE) * typical_s:
        return
    steps = timed_steps(cell)
    long = pl.col("world_s") > LONG * typical_s
    slow, usual = steps.filter(long), steps.filter(~long)
    message = (
        f"{summary.timed_steps:,} steps took {number_text(1e3 * mean_s)} ms on average, the median one "
        f"{number_text(1e3 * typical_s)} ms"
    )
    if slow.is_empty() or usual.is_empty():
        yield WarningRecord(code="uneven-steps", message=f"{message}; throughput and speed-up are from the average.")
        return
    having, without = (each.select(pl.col(*PARTS).mean()).row(0, named=True) for each in (slow, usual))
    known = [name for name in PARTS if having[name] is not None and without[name] is not None]
    part = max(known, key=lambda name: having[name] - without[name], default=None)
    most = f", most of the difference in {NAMES[part]}" if part else ""
    length_ms = number_text(1e3 * float(np.mean(slow["world_s"].to_numpy())))
    yield WarningRecord(
        code="uneven-steps",
        message=(
            f"{message}: {_how_often(steps, slow)} took {length_ms} ms{most}. "
            "Throughput and speed-up are from all steps."
        ),
    )


def _how_often(steps: pl.DataFrame, slow: pl.DataFrame) -> str:
    """`every 4 steps one`, where long ones come at regular distances; else their share."""
    keys = ["session", "block"]
    apart = slow.sort("session", "step").select(pl.col("step").diff().over(keys)).to_series().drop_nulls().to_numpy()
    if apart.size:
        usual = int(np.median(apart))
        if usual > 1 and np.mean(apart == usual) >= REGULAR:
            return f"every {usual} steps one"
    return f"{percent_text(slow.height / steps.height)} of them"
