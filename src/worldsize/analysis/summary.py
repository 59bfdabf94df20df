"""From the raw steps of a cell to its summary; only timed steps count (method.md §2, §8)."""

import polars as pl

from worldsize.analysis.statistics import Blocks, median_estimate, reciprocal
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellSummary


def slowest_steps(cell: Cell) -> pl.DataFrame:
    """The timed steps of a cell, each ended by its slowest rank (method.md §8).

    A step that not every process has written, because the run was cut short, is left out: its slowest rank is
    unknown. So is a line that a crash has damaged. Returns session, block, step and step_s (seconds), one row
    per step in the order of time.
    """
    timed = cell.scan_steps().filter("timed", pl.col("step_s") > 0)
    steps = cell.collect(
        timed.group_by("session", "block", "step").agg(pl.col("step_s").max(), pl.len().alias("ranks"))
    )
    placement = cell.record.placement
    processes = (
        cell.collect(timed.select(pl.col("rank").n_unique())).item() if placement is None else placement.processes
    )
    return steps.filter(pl.col("ranks") == processes).drop("ranks").sort("session", "step")


def whole_steps(cell: Cell, *columns: str) -> pl.LazyFrame:
    """Some columns of the steps of all ranks that count: those of `slowest_steps`; in the order of `Cell.steps`."""
    names = list(dict.fromkeys(("session", "step", *columns)))
    counting = slowest_steps(cell).lazy()
    # In another order sums would differ in their last digits from one report to the next.
    return cell.scan_steps().select(names).join(counting, on=["session", "step"], how="semi", maintain_order="left")


def step_blocks(slowest: pl.DataFrame) -> Blocks:
    """The step times of `slowest_steps` in seconds, by (session, block)."""
    blocks = slowest.group_by("session", "block", maintain_order=True).agg("step_s")
    keys = zip(blocks["session"], blocks["block"], strict=True)
    return {key: times.to_numpy() for key, times in zip(keys, blocks["step_s"], strict=True)}


def summarise(cell: Cell, global_batch: int) -> CellSummary | None:
    """Step time, throughput and parts of a cell from its raw steps; None without a timed step.

    `global_batch` is B, the samples of all workers per step. Throughput is B over the time at which the slowest
    rank ends (method.md §8); the parts are means over timed steps and ranks in seconds (§2).
    """
    slowest = slowest_steps(cell)
    if slowest.is_empty():
        return None
    blocks = step_blocks(slowest)
    step_s = median_estimate(blocks)
    means = cell.collect(whole_steps(cell, *PARTS, "comm_s", "overlapped_s").mean()).row(0, named=True)
    # One worker sends nothing; nn.DataParallel's copies on GPUs are seen by nobody. Both are absent, not 0.
    unseen = cell.record.settings.world_size == 1 or _hidden(cell)
    return CellSummary(
        step_s=step_s,
        samples_per_s=reciprocal(step_s, global_batch),
        parts_s={part: means[part] for part in PARTS},
        comm_s=None if unseen else means["comm_s"],
        overlapped_s=None if unseen else means["overlapped_s"],
        timed_steps=slowest.height,
        blocks=len(blocks),
    )


def _hidden(cell: Cell) -> bool:
    """Whether several workers in one process exchange where no message is seen (torch's own nn.DataParallel)."""
    placement = cell.record.placement
    return placement is not None and placement.processes == 1 and placement.device == "cuda"
