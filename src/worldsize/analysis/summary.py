"""From the raw steps of a cell to its summary; only timed steps count (method.md §2, §8)."""

from weakref import WeakKeyDictionary

import polars as pl

from worldsize.analysis.statistics import Blocks, median_estimate, reciprocal
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellSummary

_SEEN: WeakKeyDictionary[Cell, pl.DataFrame] = WeakKeyDictionary()
"""Timed steps of the cells that were read: every part of the analysis asks for them."""


def slowest_steps(cell: Cell) -> pl.DataFrame:
    """The timed steps of a cell, each ended by its slowest rank (method.md §8).

    A step that not every process has written, because the run was cut short, is left out: its slowest rank is
    unknown. So is a line that a crash has damaged. Returns session, block, step and step_s (seconds), one row
    per step in the order of time.
    """
    return _timed_steps(cell).filter("whole").select("session", "block", "step", "step_s")


def _timed_steps(cell: Cell) -> pl.DataFrame:
    """The same with those that are left out, which are not `whole`."""
    if cell not in _SEEN:
        timed, good, placement = cell.scan_steps().filter("timed"), pl.col("step_s") > 0, cell.record.placement
        found = timed.group_by("session", "block", "step").agg(
            pl.col("step_s").max(), good.sum().alias("good"), pl.len().alias("lines")
        )
        ranks = cell.collect(timed.filter(good).select(pl.col("rank").n_unique())).item() if placement is None else 0
        whole = (pl.col("good") > 0) & (pl.col("good") == (placement.processes if placement else ranks))
        _SEEN[cell] = cell.collect(found.with_columns(whole.alias("whole")).sort("session", "step"))
    return _SEEN[cell]


def whole_steps(cell: Cell, *columns: str) -> pl.LazyFrame:
    """Session, step and some columns of the steps of all ranks that count, those of `slowest_steps`, in their order."""
    names, timed = list(dict.fromkeys(("session", "step", *columns))), _timed_steps(cell)
    if timed.select((pl.col("whole") & (pl.col("good") == pl.col("lines"))).all()).item():
        return cell.scan_steps().filter("timed").select(names)  # as it is where nothing was cut short
    counting = slowest_steps(cell).lazy()
    # In another order sums would differ in their last digits from one report to the next.
    whole = cell.scan_steps().join(counting, on=["session", "step"], how="semi", maintain_order="left")
    return whole.select(names)


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
