"""Communication of a cell from its messages: wait and transfer told apart, clocks aligned (method.md §3, §5)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from worldsize.analysis.bandwidth import bus_factor
from worldsize.analysis.statistics import Ratio, mean_estimate, ratio_estimate
from worldsize.analysis.summary import slowest_steps, step_blocks
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

STEP = ("rank", "session", "step")
BLOCK = ("session", "block")
KINDS = {
    "all_reduce": "all-reduce",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
}
"""Messages between processes → the collective whose bus factor they have; copies inside a process are no traffic."""


@dataclass(frozen=True)
class Communication:
    """Means per step over ranks and timed steps; seconds."""

    wait_s: float
    """Of the union of messages, the part in which the last rank had not yet issued the message."""
    transfer_s: float
    """The rest: the union of [started, done]."""
    busbw_bytes_per_s: float | None
    """Total bus bytes ÷ total transfer time, never a mean of rates; None where nothing left the process. A message
    is transferred from the last rank's issue to the last rank's end."""
    clock_error_s: float
    """Largest residual error of the aligned clocks."""
    blocks: pl.DataFrame = field(repr=False, compare=False)
    """The same three by session and block, for the intervals of what is made of them."""
    messages: pl.DataFrame = field(repr=False, compare=False)
    """One row per message of all ranks: session, block, step, number, kind and payload_bytes; issued_ns and done_ns of
    the last rank, last_rank (which one issued it last) and waited_ns (how long for it, mean over ranks)."""


def messages(cell: Cell) -> pl.DataFrame:
    """The messages of all timed steps: see `aligned`."""
    return aligned(cell.spans, cell.steps.filter("timed"))


def aligned(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per message, rank and step, with issued, started and done on rank 0's clock (ns, int64).

    `steps` are whole steps: all ranks of each. A message is the same on all ranks if it is the k-th of its step.
    *Started* is when the last rank has issued it; a rank that was done before that (a sender to a root) never
    waited, so started is at most done.
    """
    clocks = steps.select(*STEP, "block", "start_ns", "clock_offset_ns", "clock_error_ns")
    columns = ["kind", "payload_bytes", "issued_s", "done_s"]
    return (
        spans.join(clocks, on=STEP)
        .with_columns(pl.int_ranges(pl.col("kind").list.len()).alias("number"))
        .explode(*columns, "number")
        .with_columns(
            *(
                (
                    pl.col("start_ns") + pl.col("clock_offset_ns") + (pl.col(f"{point}_s") * 1e9).round().cast(pl.Int64)
                ).alias(f"{point}_ns")
                for point in ("issued", "done")
            )
        )
        .with_columns(pl.col("issued_ns").max().over("session", "step", "number").alias("last_issued_ns"))
        .with_columns(
            pl.min_horizontal("done_ns", pl.max_horizontal("issued_ns", "last_issued_ns")).alias("started_ns")
        )
        .drop("issued_s", "done_s", "last_issued_ns")
    )


def unions(spans: pl.DataFrame, start: str, end: str) -> pl.DataFrame:
    """Length `union_s` (s) of the unions of intervals per rank and step, summed in each session and block.

    It is what each interval adds to those before it.
    """
    reached = pl.col(end).cum_max().shift(1).over(*STEP)
    new_ns = (pl.col(end) - pl.max_horizontal(start, reached)).clip(lower_bound=0)
    added = spans.sort(*STEP, start).select(*BLOCK, (new_ns / 1e9).alias("union_s"))
    return added.group_by(*BLOCK, maintain_order=True).agg(pl.col("union_s").sum())


def communication(cell: Cell) -> Communication | None:
    """Wait, transfer and bus bandwidth of a cell; None where no message was recorded (as at N = 1)."""
    spans = messages(cell)
    if spans.is_empty() or cell.record.settings.world_size == 1:
        return None
    together = _together(spans)
    bus = _bus_transfers(cell, together)
    blocks = (
        cell.steps.filter("timed")
        .group_by(*BLOCK)
        .agg(pl.len().alias("rows"))
        .join(unions(spans, "issued_ns", "done_ns"), on=BLOCK, how="left")
        .join(unions(spans, "started_ns", "done_ns"), on=BLOCK, how="left", suffix="_of_transfer")
        .join(bus, on=BLOCK, how="left")
        .sort(*BLOCK)
        .fill_null(0)  # a block without messages sent none
    )
    rows, transfer_s = pl.col("rows"), pl.col("union_s_of_transfer")
    means = (
        ((pl.col("union_s") - transfer_s).sum() / rows.sum()).alias("wait_s"),
        (transfer_s.sum() / rows.sum()).alias("transfer_s"),
        _rate(pl.col("bus_bytes"), pl.col("bus_s")).alias("busbw_bytes_per_s"),
    )
    of_all = blocks.select(*means).row(0, named=True)
    return Communication(
        **of_all,
        clock_error_s=float(spans.select(pl.col("clock_error_ns").max()).item()) / 1e9,
        blocks=blocks.group_by(*BLOCK, maintain_order=True).agg(*means),
        messages=together,
    )


def _rate(bus_bytes: pl.Expr, bus_s: pl.Expr) -> pl.Expr:
    """Bytes ÷ seconds of transfer; absent where nothing left the process."""
    return pl.when(bus_s.sum() > 0).then(bus_bytes.sum() / bus_s.sum())


def _together(spans: pl.DataFrame) -> pl.DataFrame:
    """Each message once, as all ranks together saw it."""
    issued = pl.col("issued_ns")
    return (
        spans.sort("rank")
        .group_by(*BLOCK, "step", "number", maintain_order=True)
        .agg(
            pl.col("kind", "payload_bytes").first(),
            issued.max(),
            pl.col("done_ns").max(),
            pl.col("rank").get(issued.arg_max()).alias("last_rank"),
            (issued.max() - issued).mean().alias("waited_ns"),
        )
    )


def _bus_transfers(cell: Cell, together: pl.DataFrame) -> pl.DataFrame:
    """Bus bytes and seconds of transfer (`bus_bytes`, `bus_s`) by session and block; empty where nothing left."""
    factors = {kind: bus_factor(name, cell.record.settings.world_size) for kind, name in KINDS.items()}
    placement = cell.record.placement
    leaves = placement is not None and placement.processes > 1
    factor = pl.col("kind").replace_strict(factors, default=None, return_dtype=pl.Float64)
    # Once per message, from the last rank's issue to the last rank's end: a sender is done as soon as the system has
    # taken its bytes, long before they have arrived.
    whole = together.filter(pl.col("kind").is_in(list(factors)) & leaves).with_columns(
        pl.lit(0, dtype=pl.Int64).alias("rank"), (pl.col("payload_bytes") * factor).alias("bus_bytes")
    )
    carried = whole.group_by(*BLOCK).agg(pl.col("bus_bytes").sum())
    return carried.join(unions(whole, "issued_ns", "done_ns"), on=BLOCK).rename({"union_s": "bus_s"})


@dataclass(frozen=True)
class Exposed:
    """Exposed communication per step, found in two independent ways (method.md §3); seconds, means over ranks."""

    timeline: Estimate
    """The union of messages outside compute."""
    pairing: Estimate
    """Steps with synchronisation − steps of the same worker without it, in turn."""
    difference: Estimate
    """Pairing − timeline, block by block."""

    @property
    def disagree(self) -> bool:
        """Whether the interval of the difference excludes 0."""
        low, high = self.difference.low, self.difference.high
        return low is not None and high is not None and not low <= 0 <= high


def exposed(cell: Cell) -> Exposed | None:
    """Both ways, over the blocks that have both halves; None without such a block."""
    block = ["session", "block"]
    timed = cell.steps.filter("timed").group_by("rank", *block)
    having = timed.agg(pl.col("step_s").median(), pl.col("exposed_sync_s").mean().alias("timeline_s"))
    without = cell.unsynchronised.group_by("rank", *block).agg(pl.col("step_s").median().alias("without_s"))
    pairs = (
        having.join(without, on=["rank", *block])
        .with_columns((pl.col("step_s") - pl.col("without_s")).alias("pairing_s"))
        .group_by(*block)
        .agg(pl.col("timeline_s", "pairing_s").mean())
    )
    if pairs.is_empty():
        return None
    return Exposed(
        timeline=mean_estimate(pairs["timeline_s"].to_numpy()),
        pairing=mean_estimate(pairs["pairing_s"].to_numpy()),
        difference=mean_estimate((pairs["pairing_s"] - pairs["timeline_s"]).to_numpy()),
    )


def observing(cells: Iterable[Cell]) -> Ratio | None:
    """The price of observing: step with instruments ÷ step without, over the pairs of all cells (method.md §2).

    Each pair is a block of its own; None without one.
    """
    having: dict[tuple[int, int], Any] = {}
    without: dict[tuple[int, int], Any] = {}
    for number, cell in enumerate(cells):
        blocks = step_blocks(slowest_steps(cell))
        for pair in cell.record.unobserved:
            if (pair.session, pair.block) in blocks:
                key = number, len(having)
                having[key], without[key] = blocks[pair.session, pair.block], np.array(pair.step_s)
    return ratio_estimate(having, without) if having else None
