"""What makes a step longer than one worker's, by cause, from the blocks in which both were timed (method.md §8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from scipy.special import stdtrit

from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.statistics import LEVEL
from worldsize.analysis.steps import BLOCK, STEPS
from worldsize.results.records import BESIDE_PARTS, PARTS, Estimate

LossCause = Literal["exposed_sync", "data_wait", "compute", "copy_and_other", "beside", "wrapper", "cores"]

CAUSED_BY: dict[LossCause, tuple[str, ...]] = {
    "exposed_sync": ("exposed_sync_s",),
    "data_wait": ("data_wait_s",),
    "compute": COMPUTE_PARTS,
    "copy_and_other": ("copy_s", "other_s"),
    "beside": BESIDE_PARTS,
}
"""The parts in which a loss shows."""
OF_OTHER = "_of_other"
"""Ends the name of a part of the cell that is compared with."""


@dataclass(frozen=True)
class Losses:
    """Seconds per step of a rank; steps are as printed (method.md §2, §8)."""

    step_s: float
    """Mean step of the cell: the sum of its parts."""
    baseline_s: float
    """A worker's share of its baseline's: with the same local batch all of it, with the same global one 1/N."""
    by_cause: dict[LossCause, Estimate]
    """Largest first; one below 0 is a gain."""


def losses(cell: CellAnalysis, baseline: CellAnalysis, wrapped: CellAnalysis | None) -> Losses | None:
    """What makes a cell's step longer than a worker's share of its baseline's, by cause.

    None where the two have no block, or no part, in common. The causes add up to the cell's printed step less that
    share of the baseline's. `wrapped`: the strategy around one worker, with the baseline's samples, if measured. What
    its step takes longer than the baseline's, in the blocks of these two, is the cause `wrapper` and in no other; or
    `cores`, where the baseline is a script by itself, with all of them.
    """
    cells = [cell, baseline, *([wrapped] if wrapped else [])]
    parts = [part for part in PARTS if all(part in _known(each) for each in cells)]
    beside = _beside(cell, baseline, as_printed=True)
    if beside is None or not parts:
        return None
    around = None if wrapped is None else _beside(wrapped, baseline, as_printed=False)
    if around is not None and around.height < min(2, beside.height):
        around = None  # a single block tells nothing of how far it is off
    causes: dict[LossCause, Estimate] = {
        cause: _longer(beside, around, own)
        for cause, names in CAUSED_BY.items()
        if (own := [part for part in names if part in parts])
        if cause != "beside" or any(each.summary and each.summary.parts_s[part] for each in cells for part in own)
    }
    if around is not None:
        causes["cores" if baseline.alone else "wrapper"] = _longer(around, None, parts)
    return Losses(
        step_s=_mean(beside, pl.sum_horizontal(*_known(cell))),
        baseline_s=_mean(beside, pl.sum_horizontal(*(f"{part}{OF_OTHER}" for part in _known(baseline)))),
        by_cause=dict(sorted(causes.items(), key=lambda item: item[1].value, reverse=True)),
    )


def _known(cell: CellAnalysis) -> list[str]:
    """The parts of its step that were marked."""
    return list(cell.summary.parts_s) if cell.summary else []


def _beside(cell: CellAnalysis, other: CellAnalysis, *, as_printed: bool) -> pl.DataFrame | None:
    """The parts of two cells (s) in the blocks that both have; None without such a block.

    The parts of `cell` add up to its printed step. Those of `other`, one worker, are cut to the samples of one worker
    of `cell`: `as_printed` they add up to that share of its printed step, else they have the scale of `cell`, so that
    the difference is only what these blocks have.
    """
    own = cell.block_means.select(*BLOCK, STEPS, *_known(cell)).drop_nulls()
    named = (pl.col(part).alias(f"{part}{OF_OTHER}") for part in _known(other))
    both = own.join(other.block_means.select(*BLOCK, *named).drop_nulls(), on=BLOCK).sort(*BLOCK)
    if both.is_empty():
        return None
    of_cell, of_other = _known(cell), [f"{part}{OF_OTHER}" for part in _known(other)]
    scale, scale_of_other = _scale(cell, both, of_cell), _scale(other, both, of_other)
    if scale is None or scale_of_other is None:
        return None
    share = cell.samples_per_step / cell.world_size / other.samples_per_step
    of_share = share * (scale_of_other if as_printed else scale)
    return both.with_columns(pl.col(of_cell) * scale, pl.col(of_other) * of_share)


def _scale(cell: CellAnalysis, frame: pl.DataFrame, parts: Sequence[str]) -> float | None:
    """Printed step ÷ the sum of the parts of a cell in these blocks; None where one of them is not known."""
    sum_s = _mean(frame, pl.sum_horizontal(parts)) if parts else 0.0
    return cell.level.value_s / sum_s if cell.level is not None and sum_s > 0 else None


def _mean(frame: pl.DataFrame, value: pl.Expr) -> float:
    """Mean over the steps of all blocks."""
    mean: float = frame.select((value * STEPS).sum() / STEPS.sum()).item()
    return mean


def _longer(beside: pl.DataFrame, around: pl.DataFrame | None, parts: Sequence[str]) -> Estimate:
    """What a cell takes longer than its baseline in some parts, less what one worker in the wrapper does.

    The interval is Student's, of what each block has of the deviation from both means, as in `steps.ratio_over`: where
    the same blocks are in both, the baseline cancels.
    """
    more_s = pl.sum_horizontal(*(pl.col(part) - pl.col(f"{part}{OF_OTHER}") for part in parts))
    value = 0.0
    counts: list[int] = []
    deviations: list[pl.DataFrame] = []
    for sign, frame in ((1.0, beside), (-1.0, around)):
        if frame is None or (sign < 0 and not frame.select((more_s != 0).any()).item()):
            continue  # what neither of two cells has, as communication of one worker, is known from any block
        mean_s = _mean(frame, more_s)
        value += sign * mean_s
        counts.append(frame.height)
        deviations.append(frame.select(*BLOCK, ((more_s - mean_s) * STEPS / STEPS.sum() * sign).alias("apart_s")))
    count = min(counts)
    if count < 2:
        return Estimate(value=value, samples=count)
    apart_s = pl.concat(deviations).group_by(*BLOCK, maintain_order=True).agg(pl.col("apart_s").sum())["apart_s"]
    student = float(stdtrit(count - 1, (1 + LEVEL) / 2))
    half_s = student * float(np.sqrt((apart_s.to_numpy() ** 2).sum() * count / (count - 1)))
    return Estimate(value=value, low=value - half_s, high=value + half_s, samples=count)
