"""Communication of a cell from its messages: wait apart from transfer, clocks aligned (method.md §3, §5)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from worldsize.analysis.collective_cost import bus_factor
from worldsize.analysis.levels import ratio_estimate
from worldsize.analysis.messages import BLOCK, KINDS, collectives
from worldsize.analysis.numbers import estimate_text, number_text
from worldsize.analysis.parts import with_parts
from worldsize.analysis.statistics import Ratio, mean_estimate
from worldsize.analysis.steps import world_steps
from worldsize.analysis.summary import step_blocks
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate


class RankWait(NamedTuple):
    """How long a rank waits per step (s), mean over its steps."""

    rank: int
    wait_s: float


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
    """The same three by session and block, for the intervals of what is made of them; and wait_most_s, the wait of the
    rank that waits longest in each step."""
    by_rank: pl.DataFrame = field(repr=False, compare=False)
    """rank, wait_s and transfer_s: means over the timed steps of each rank."""
    messages: pl.DataFrame = field(repr=False, compare=False)
    """One row per message of all ranks, the rank that is waited for among it: see messages.Collectives."""

    def scaled(self, factor: float) -> "Communication":
        """The same with wait and transfer, the means and those of each rank, times an exact positive factor."""
        return replace(
            self,
            wait_s=factor * self.wait_s,
            transfer_s=factor * self.transfer_s,
            by_rank=self.by_rank.with_columns(pl.col("wait_s", "transfer_s") * factor),
        )

    @property
    def extremes(self) -> tuple[RankWait, RankWait] | None:
        """The rank that waits longest and the one that waits least; None where all wait alike, by their clocks."""
        ranks = self.by_rank.select("rank", "wait_s")
        most, least = (
            RankWait(*ranks.sort("wait_s", "rank", descending=[down, False]).row(0)) for down in (True, False)
        )
        return (most, least) if most.wait_s - least.wait_s > max(self.clock_error_s, 1e-9) else None


def waits_text(found: Communication) -> str:
    """A wait per step as people read it: the mean over ranks, and the ranks that wait most and least."""
    mean, extremes = f"{number_text(1e3 * found.wait_s)} ms", found.extremes
    if extremes is None:
        return f"{mean} (mean over ranks)"
    names = ("", "") if found.by_rank.height == 2 else ("most on ", "least on ")
    pair = sorted(zip(extremes, names, strict=True), key=lambda each: each[0].rank if not names[0] else 0)
    return (
        f"{mean} (mean; "
        + ", ".join(f"{name}rank {each.rank}: {number_text(1e3 * each.wait_s)}" for each, name in pair)
        + ")"
    )


def communication(cell: Cell) -> Communication | None:
    """Wait, transfer and bus bandwidth of a cell; None where no message was recorded (as at N = 1)."""
    found = collectives(cell) if cell.record.world_size > 1 else None
    if found is None:
        return None
    counts = pl.len().alias("rows"), pl.col("step").n_unique().alias("steps")
    blocks = (
        cell.collect(cell.scan_steps().filter("timed").group_by(*BLOCK).agg(*counts))
        .join(found.unions, on=BLOCK, how="left")
        .join(_bus_transfers(cell, found.together), on=BLOCK, how="left")
        .sort(*BLOCK)
        .fill_null(0)  # a block without messages sent none
    )
    rows, comm_s, transfer_s, bus_s = (
        pl.col("rows").sum(),
        *(pl.col(f"{name}_ns").sum() / 1e9 for name in ("comm", "transfer", "bus")),
    )
    means = (
        ((comm_s - transfer_s) / rows).alias("wait_s"),
        (transfer_s / rows).alias("transfer_s"),
        # Absent where nothing left the process.
        pl.when(bus_s > 0).then(pl.col("bus_bytes").sum() / bus_s).alias("busbw_bytes_per_s"),
    )
    return Communication(
        **blocks.select(*means).row(0, named=True),
        clock_error_s=found.clock_error_ns / 1e9,
        blocks=blocks.group_by(*BLOCK, maintain_order=True).agg(
            *means, (pl.col("wait_most_ns").sum() / 1e9 / pl.col("steps").sum()).alias("wait_most_s")
        ),
        by_rank=found.by_rank.select(
            "rank",
            ((pl.col("comm_ns") - pl.col("transfer_ns")) / 1e9 / pl.col("steps")).alias("wait_s"),
            (pl.col("transfer_ns") / 1e9 / pl.col("steps")).alias("transfer_s"),
        ),
        messages=found.together,
    )


def _bus_transfers(cell: Cell, together: pl.DataFrame) -> pl.DataFrame:
    """Bus bytes and ns of transfer (`bus_bytes`, `bus_ns`) by session and block; empty where nothing left.

    Once per message, from the last rank's issue to the last rank's end: a sender is done as soon as the system has
    taken its bytes, long before they have arrived.
    """
    factors = {kind: bus_factor(name, cell.record.world_size) for kind, name in KINDS.items()}
    placement = cell.record.placement
    leaves = placement is None or placement.processes > 1  # a meter sees messages between processes alone
    factor = pl.col("kind").replace_strict(factors, default=None, return_dtype=pl.Float64)
    reached = pl.col("done_ns").cum_max().shift(1).over("session", "step")
    return (
        together.filter(pl.col("kind").is_in(list(factors)) & leaves)
        .sort("session", "step", "issued_ns")
        .with_columns((pl.col("done_ns") - pl.max_horizontal("issued_ns", reached)).clip(lower_bound=0).alias("bus_ns"))
        .with_columns((pl.col("payload_bytes") * factor).alias("bus_bytes"))
        .group_by(*BLOCK)
        .agg(pl.col("bus_bytes", "bus_ns").sum())
    )


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
    step_s = pl.col("step_s").mean()
    timed = with_parts(cell).filter("timed").group_by("rank", *BLOCK, maintain_order=True)
    having = timed.agg(step_s, pl.col("exposed_sync_s").mean().alias("timeline_s"))
    without = cell.scan_unsynchronised().group_by("rank", *BLOCK).agg(step_s.alias("without_s"))
    pairs = cell.collect(
        having.join(without, on=["rank", *BLOCK], maintain_order="left")
        .with_columns((pl.col("step_s") - pl.col("without_s")).alias("pairing_s"))
        .group_by(*BLOCK, maintain_order=True)
        .agg(pl.col("timeline_s", "pairing_s").mean())
    )
    if pairs.is_empty():
        return None
    return Exposed(
        timeline=mean_estimate(pairs["timeline_s"].to_numpy()),
        pairing=mean_estimate(pairs["pairing_s"].to_numpy()),
        difference=mean_estimate((pairs["pairing_s"] - pairs["timeline_s"]).to_numpy()),
    )


def observing_text(price: Ratio) -> str:
    """The instrumentation overhead as people read it; below 1 it is shown with its interval alone.

    What lies below 1 by more than its interval is no price: the machine changed between the two halves of the pairs.
    """
    found = price.estimate
    if found.value < 1 and found.high is None:
        return "Instrumentation overhead: not known, for the only pair of blocks was disturbed by more than that."
    text = f"Instrumentation overhead: a step with it takes {estimate_text(found)} times as long as one without it"
    if found.high is not None and found.high < 1:
        return f"{text}; it makes no step shorter, so the machine changed between the two."
    return f"{text}."


def observing(cells: Iterable[Cell]) -> Ratio | None:
    """The instrumentation overhead: step with instruments ÷ step without, over the pairs of all cells (method.md §2).

    Each pair is a block of its own; None without one.
    """
    having: dict[tuple[int, int], Any] = {}
    without: dict[tuple[int, int], Any] = {}
    for number, cell in enumerate(cells):
        blocks = step_blocks(world_steps(cell)) if cell.record.unobserved else {}
        for pair in cell.record.unobserved:
            if (pair.session, pair.block) in blocks:
                key = number, len(having)
                having[key], without[key] = blocks[pair.session, pair.block], np.array(pair.step_s)
    return ratio_estimate(having, without) if having else None
