"""From the raw steps of a cell to its summary; only timed steps count (method.md §2, §8)."""

import numpy as np
import polars as pl

from worldsize.analysis.dependence import Launches
from worldsize.analysis.levels import levels
from worldsize.analysis.statistics import Blocks, reciprocal
from worldsize.analysis.steps import steps_of_ranks, timed_steps, world_steps
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellSummary


def step_blocks(steps: pl.DataFrame) -> Blocks:
    """The step times of `world_steps` in seconds, by (session, block)."""
    blocks = steps.group_by("session", "block", maintain_order=True).agg("step_s")
    keys = zip(blocks["session"], blocks["block"], strict=True)
    return {key: times.to_numpy() for key, times in zip(keys, blocks["step_s"], strict=True)}


def block_launches(steps: pl.DataFrame) -> Launches:
    """In which launch of the cell each block of `timed_steps` was timed, by (session, block)."""
    blocks = steps.group_by("session", "block", maintain_order=True).agg(pl.col("launch").last())
    return {(session, block): launch for session, block, launch in blocks.iter_rows()}


def summarise(cell: Cell) -> CellSummary | None:
    """Step time, throughput and parts of a cell from its raw steps; None without a timed step.

    Throughput is samples of all workers ÷ elapsed time of the timed steps, from the end of a step on its last rank to
    that of the next (method.md §8); the parts are means over timed steps and ranks in seconds (§2).
    """
    steps = world_steps(cell)
    if steps.is_empty():
        return None
    blocks = step_blocks(steps)
    step_s = levels({"cell": blocks})["cell"].step_s
    # Every rank has written each of these steps, so the mean of their means over ranks is the mean over all.
    means = timed_steps(cell).select(pl.col(*PARTS, "comm_s", "overlapped_s").mean()).row(0, named=True)
    # One worker sends nothing; nn.DataParallel's copies on GPUs are not seen. Both are absent, not 0.
    unseen = cell.record.world_size == 1 or _hidden(cell)
    return CellSummary(
        step_s=step_s,
        samples_per_s=reciprocal(step_s, _samples(cell)),
        typical_step_s=float(np.median(steps["step_s"].to_numpy())),
        parts_s={part: means[part] for part in PARTS if means[part] is not None},
        comm_s=None if unseen else means["comm_s"],
        overlapped_s=None if unseen else means["overlapped_s"],
        timed_steps=steps.height,
        disturbed_steps=cell.disturbed.height,
        blocks=len(blocks),
    )


def _samples(cell: Cell) -> float:
    """Samples of a timed step, of all workers: B, or the mean where a loop of the user's own feeds them."""
    settings = cell.record.settings
    if settings is not None and settings.program is None:
        return cell.record.global_batch
    steps = steps_of_ranks(cell, "session", "step", "samples").group_by("session", "step").agg(pl.col("samples").sum())
    mean: float = cell.collect(steps.select(pl.col("samples").mean())).item()
    return mean


def _hidden(cell: Cell) -> bool:
    """Whether several workers in one process synchronise where no message is seen (torch's own nn.DataParallel)."""
    placement = cell.record.placement
    return placement is not None and placement.processes == 1 and placement.device == "cuda"
