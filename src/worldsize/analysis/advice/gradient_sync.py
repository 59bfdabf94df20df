"""The gradient synchronisation of a cell: what its exposed communication is, and what limits it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import polars as pl

from worldsize.analysis.advice.gains import (
    DATA_WAIT_MOST,
    EXPOSED,
    MOSTLY,
    STEP,
    STEP_MOST,
    Part,
    at_least,
    notable,
    part,
)
from worldsize.analysis.bandwidth import LinkAnalysis
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.messages import KINDS
from worldsize.analysis.statistics import scaled
from worldsize.analysis.steps import mean_over, ratio_over
from worldsize.results.records import Estimate

NEAR_PEAK = 0.8
"""Share of what the link can carry from which on the link is said to be full."""
ABOVE_PEAK = 1.25
"""Share of a measured peak from which on it is too low: what carries more has more than that."""
MANY = 8
"""Messages per step from which on their number is worth a word."""
TRUSTED_FIT = 0.5
"""R² of a cost model below which its latency is not spoken of."""
FOR_DATA = pl.min_horizontal(EXPOSED, DATA_WAIT_MOST - pl.col("data_wait_s"))
"""What of the exposed communication can be waiting for a rank that waits for its data, mean over ranks."""
ROOTED = ("gather", "scatter", "replicate", "reduce")
"""Messages that all pass through one rank."""

Limit = Literal["stragglers", "root", "bandwidth", "latency", "unknown"]


@dataclass(frozen=True)
class Reference:
    """What a link can carry."""

    name: str
    bytes_per_s: float
    host: int | None = None
    """Whose link it is, where those of the hosts differ."""
    measured: bool = False
    """By the benchmark; else it is known."""

    def __str__(self) -> str:
        return f"{self.name} of the link" + ("" if self.host is None else f" of host {self.host}")


class GradientSync:
    """The communication of a cell of several workers."""

    def __init__(self, cell: CellAnalysis, blocks: pl.DataFrame, link: LinkAnalysis | None) -> None:
        self.cell = cell
        self.blocks = blocks
        self.link = link

    @cached_property
    def exposed(self) -> Part | None:
        """The exposed part of the step (method.md §3)."""
        return part(self.blocks, EXPOSED)

    @property
    def exposed_at_most(self) -> pl.Expr:
        """Seconds per step that are exposed, by the way of measuring that finds more (method.md §3)."""
        return EXPOSED * self.more_of_pairs

    @property
    def more_of_pairs(self) -> float:
        """How many times as much the second way of measuring finds, in the same blocks; 1 where that is not more."""
        both = self.cell.exposed
        return both.pairing.value / both.timeline.value if both and self.more_by_pairing else 1.0

    @property
    def more_by_pairing(self) -> bool:
        """Whether the second way of measuring finds significantly more of it."""
        both = self.cell.exposed
        return both is not None and both.disagree and 0 < both.timeline.value < both.pairing.value

    @cached_property
    def overlapped(self) -> Part | None:
        """The part of the communication that is hidden behind computing; None where no message was seen."""
        return part(self.blocks, pl.col("overlapped_s")) if self.cell.communication else None

    @cached_property
    def share(self) -> Estimate | None:
        """Share of all communication in the step, hidden or not."""
        return self._ratio(pl.col("comm_s"), pl.col("step_s"))

    @cached_property
    def hidden(self) -> Estimate | None:
        """Share of the communication that is overlapped."""
        return self._ratio(pl.col("overlapped_s"), pl.col("comm_s"))

    @cached_property
    def limit(self) -> Limit | None:
        """What the exposed communication is due to; None where it is not notable."""
        if self.exposed is None or not notable(self.exposed.share) or self.for_data_only:
            return None
        if notable(self.waiting, MOSTLY):
            return "stragglers"
        if self.rooted and self.cell.world_size > 2:  # of two, each sends and takes as much as the other
            return "root"
        if at_least(self.used, NEAR_PEAK) and not self.above_peak:
            return "bandwidth"
        return "latency" if self.many_small else "unknown"

    @property
    def above_peak(self) -> bool:
        """Whether the messages use more than the benchmark found: then it says nothing of what the link can carry."""
        return self.reference is not None and self.reference.measured and at_least(self.used, ABOVE_PEAK)

    @cached_property
    def for_data(self) -> Part | None:
        """What of the exposed communication is waiting for a rank without data; None where that is not notable."""
        if not notable(ratio_over(self.blocks, DATA_WAIT_MOST, STEP_MOST)):
            return None
        found = part(self.blocks, FOR_DATA)
        return found if found is not None and notable(found.share) else None

    @property
    def for_data_only(self) -> bool:
        """Whether waiting for such a rank explains all that is notable of it: then the data is the cause."""
        return self.for_data is not None and not notable(ratio_over(self.blocks, EXPOSED - FOR_DATA, STEP))

    @cached_property
    def waiting(self) -> Estimate | None:
        """Share of the communication in which the last rank had not issued its message yet."""
        return self._ratio(pl.col("wait_s"), pl.col("wait_s") + pl.col("transfer_s"))

    @cached_property
    def busbw(self) -> Estimate | None:
        """Bus bandwidth of the messages: that of the cell (method.md §5), with the deviations of its blocks."""
        whole = self.cell.communication.busbw_bytes_per_s if self.cell.communication else None
        if whole is None:
            return None
        rate = pl.col("busbw_bytes_per_s")
        found = mean_over(self.blocks, rate - rate.mean() + whole)
        if found is None or found.low is None:
            return found
        return found.model_copy(update={"low": max(0.0, found.low)})  # no message takes less than no time

    @cached_property
    def reference(self) -> Reference | None:
        """What the link can carry: its rated payload where it is known, else the peak of the benchmark."""
        if self.link is None:
            return None
        rated = self.link.rated(rooted=self.rooted)
        if rated is not None:
            return Reference("payload rate", rated.bytes_per_s, rated.host)
        peak = self.link.peak(rooted=self.rooted)
        return Reference("measured peak", peak, measured=True) if peak is not None else None

    @cached_property
    def used(self) -> Estimate | None:
        """Bus bandwidth ÷ what the link can carry."""
        return scaled(self.busbw, 1 / self.reference.bytes_per_s) if self.busbw and self.reference else None

    @cached_property
    def traffic(self) -> pl.DataFrame:
        """Messages and payload bytes per step by kind (`kind`, `messages`, `bytes`)."""
        sizes = pl.col("messages", "bytes")
        return self._sizes.group_by("kind", maintain_order=True).agg(sizes.sum())

    @cached_property
    def _sizes(self) -> pl.DataFrame:
        """Messages per step of each size, as the first rank has them (`kind`, `size`, `messages`, `bytes`: of all)."""
        if self.cell.communication is None:
            return pl.DataFrame(
                schema={"kind": pl.String, "size": pl.Int64, "messages": pl.Float64, "bytes": pl.Float64}
            )
        sent, steps_of = self.cell.communication.messages, int(self.blocks["steps"].sum())  # some steps send nothing
        alike = sent.group_by("kind", pl.col("payload_bytes").alias("size"), maintain_order=True)
        return alike.agg((pl.len() / steps_of).alias("messages")).with_columns(
            (pl.col("messages") * pl.col("size")).alias("bytes")
        )

    @property
    def messages(self) -> float:
        """Messages per step."""
        return float(self.traffic["messages"].sum())

    @property
    def bytes(self) -> float:
        """Payload bytes per step."""
        return float(self.traffic["bytes"].sum())

    @property
    def collectives(self) -> list[str]:
        """The collectives of the messages, those with the most bytes first."""
        return [KINDS[kind] for kind in self.traffic.sort("bytes", descending=True)["kind"] if kind in KINDS]

    @property
    def rooted(self) -> bool:
        """Whether most bytes pass through one rank."""
        through = self.traffic.filter(pl.col("kind").is_in(ROOTED))
        return float(through["bytes"].sum()) > MOSTLY * self.bytes

    @cached_property
    def modelled(self) -> tuple[float, float] | None:
        """Seconds per step that the link's cost model gives to latency and to bytes; None without a model to trust."""
        models = {} if self.link is None else self.link.models
        latency = transfer = 0.0
        for kind, size, messages, _ in self._sizes.iter_rows():
            model = models.get(KINDS.get(kind, ""))
            if model is None or model.r_squared < TRUSTED_FIT:
                return None
            transfer += messages * model.transfer_s(size)
            latency += messages * (model.time_s(size) - model.transfer_s(size))
        return latency, transfer

    @property
    def many_small(self) -> bool:
        """Whether the latency of many messages is most of what the model gives them, and a notable part of the step."""
        if self.modelled is None or self.messages < MANY:
            return False
        latency, transfer = self.modelled
        return latency > transfer and notable(part_share(self.blocks, latency))

    def _ratio(self, top: pl.Expr, bottom: pl.Expr) -> Estimate | None:
        return ratio_over(self.blocks, top, bottom) if self.cell.communication else None


def part_share(blocks: pl.DataFrame, seconds: float) -> Estimate | None:
    """Share of the step of a length that is the same in every block, or of the exposed part where that is shorter."""
    return ratio_over(blocks, pl.min_horizontal(EXPOSED, seconds), STEP)
