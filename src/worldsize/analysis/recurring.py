"""What makes some steps of a cell longer than its typical one, again and again (method.md §8)."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.steps import timed_steps
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellSummary, WarningRecord
from worldsize.traits import traits_of

NOTABLE = 0.05
"""Share by which the mean step may exceed the typical one before it is said."""
LONG = 1.25
"""A step that takes this many times the typical one is a long one."""
PEAK = 0.5
"""Share of what the longest tenth of the long steps takes more, from which on a long step stands out of the others."""
REGULAR = 0.75
"""Share of the distances between long steps that must be multiples of the usual one for it to be told as a period."""
NAMES = {
    "data_wait_s": "waiting for data",
    "copy_s": "copying to the device",
    "forward_s": "the forward pass",
    "backward_s": "the backward pass",
    "exposed_sync_s": "exposed communication",
    "optimizer_s": "the optimizer",
    "other_s": "work outside the named parts",
    "evaluation_s": "evaluation",
    "checkpoint_s": "checkpoints",
    "restart_s": "loaders that begin anew",
    "logging_s": "logging",
    "garbage_s": "garbage collection",
}


@dataclass(frozen=True)
class LongSteps:
    """The steps of a cell that make its mean step longer than its typical one."""

    typical_s: float
    mean_s: float
    long_s: float | None
    """Mean of the long ones; None where no step is long by itself."""
    share: float
    every: int | None
    """Distance in steps, where they come at regular ones."""
    part: str | None
    """The part of the step that has most of the difference: a name of PARTS. Exposed communication is waiting for it
    on other ranks, so it is named only where no other part has any."""
    waiting_s: float = 0.0
    """How much longer a mean step waits for data than one that is not long."""


def long_steps(cell: Cell, summary: CellSummary) -> LongSteps | None:
    """What makes elapsed time ÷ steps more than 5 % longer than the median step; None where nothing does.

    Both of the steps as they were: the step time of a summary may be that beside other cells, over other blocks.
    """
    typical_s, steps = summary.typical_step_s, timed_steps(cell)
    mean_s = float(np.mean(steps["world_s"].to_numpy()))
    if typical_s is None or mean_s <= (1 + NOTABLE) * typical_s:
        return None
    slow, usual = (steps.filter(which) for which in (is_long(typical_s), ~is_long(typical_s)))
    if slow.is_empty() or usual.is_empty():
        return LongSteps(typical_s, mean_s, None, 0.0, None, None)
    # Among steps that jitter lengthens those stand out that something regular does.
    peaks = slow.filter(pl.col("world_s") - typical_s > PEAK * (pl.col("world_s").quantile(0.9) - typical_s))
    every = _distance(slow) or _distance(peaks)
    if _distance(slow) is None and every is not None:
        slow = peaks
    return LongSteps(
        typical_s=typical_s,
        mean_s=mean_s,
        long_s=float(np.mean(slow["world_s"].to_numpy())),
        share=slow.height / steps.height,
        every=every,
        part=_part(slow, usual),
        waiting_s=_mean(steps, "data_wait_s") - _mean(usual, "data_wait_s"),
    )


def is_long(typical_s: float) -> pl.Expr:
    """Whether a step of `timed_steps` is a long one."""
    return pl.col("world_s") > LONG * typical_s


def _mean(steps: pl.DataFrame, part: str) -> float:
    found = steps[part].mean()
    return found if isinstance(found, float) else 0.0  # None where no step has it


def _part(slow: pl.DataFrame, usual: pl.DataFrame) -> str | None:
    having, without = (each.select(pl.col(*PARTS).mean()).row(0, named=True) for each in (slow, usual))
    more = {n: having[n] - without[n] for n in PARTS if having[n] is not None and without[n] is not None}
    waiting = more.pop("exposed_sync_s", None)
    part = max(more, key=lambda name: more[name], default=None)
    if waiting is not None and (part is None or more[part] <= NOTABLE * waiting):
        return "exposed_sync_s"
    return part


def _distance(slow: pl.DataFrame) -> int | None:
    """The usual distance between long steps; None where they come irregularly.

    Those of several turns count, too: between them lie steps that are not timed, so a distance may be a multiple.
    """
    apart = slow.sort("session", "step").select(pl.col("step").diff().over("session", "launch"))
    distances = apart.to_series().drop_nulls().to_numpy()
    if not distances.size:
        return None
    values, counts = np.unique(distances, return_counts=True)
    usual = int(values[np.argmax(counts)])
    return usual if usual > 1 and np.mean(distances % usual == 0) >= REGULAR else None


def is_its_own(cell: Cell, found: LongSteps) -> bool:
    """Whether the long steps are those in which a strategy with a period communicates: that is how it works."""
    record = cell.record
    name = traits_of(record.strategy, record.own_traits).period
    period = getattr(record.settings, name, 1) if name and record.settings and record.world_size > 1 else 1
    in_period = found.every is None or found.every % period == 0
    return period > 1 and in_period and found.part in ("exposed_sync_s", "optimizer_s", None)


def recurring_warning(cell: Cell, summary: CellSummary) -> Iterator[WarningRecord]:
    """Where elapsed time ÷ steps is more than 5 % above the median step: what the long steps are made of."""
    found = long_steps(cell, summary)
    if found is None or is_its_own(cell, found):
        return
    message = (
        f"{summary.timed_steps:,} steps took {number_text(1e3 * found.mean_s)} ms on average, the median one "
        f"{number_text(1e3 * found.typical_s)} ms"
    )
    if found.long_s is None:
        yield WarningRecord(code="uneven-steps", message=f"{message}; throughput and speed-up are from the average.")
        return
    most = f", most of the difference in {NAMES[found.part]}" if found.part else ""
    often = f"every {found.every} steps one" if found.every else f"{percent_text(found.share)} of them"
    yield WarningRecord(
        code="uneven-steps",
        message=(
            f"{message}: {often} took {number_text(1e3 * found.long_s)} ms{most}. "
            "Throughput and speed-up are from all steps that count."
        ),
    )
