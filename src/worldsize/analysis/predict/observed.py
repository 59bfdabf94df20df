"""What a run tells of computing: how long each part takes by itself, beside messages, and how ranks differ (§14)."""

from bisect import bisect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.analysis.once import once_per_cell
from worldsize.analysis.parts import taken_apart
from worldsize.analysis.steps import steps_of_ranks, timed_steps
from worldsize.results.folder import Cell

BEFORE = ("data_wait_s", "copy_s", "forward_s")
AFTER = ("optimizer_s", "other_s")


class Compute(NamedTuple):
    """What a rank computes in a step (s), without waiting for others; mean over ranks and steps."""

    before_s: float
    """Data wait, copy and forward."""
    backward_s: float
    after_s: float
    """Optimizer and the rest."""

    @property
    def total_s(self) -> float:
        """All of it."""
        return sum(self)

    def times(self, other: "Compute") -> "Compute":
        """Part by part."""
        return Compute(*(mine * its for mine, its in zip(self, other, strict=True)))

    def plus(self, other: "Compute") -> "Compute":
        """Part by part, never below 0."""
        return Compute(*(max(0.0, mine + its) for mine, its in zip(self, other, strict=True)))

    def over(self, other: "Compute") -> "Compute":
        """Ratios, part by part; 1 where the other has nothing."""
        return Compute(*(mine / its if its > 0 else 1.0 for mine, its in zip(self, other, strict=True)))


NOTHING = Compute(0.0, 0.0, 0.0)


def mean_of(each: Iterable[Compute]) -> Compute:
    """Part by part; raises ValueError without any."""
    found = list(each)
    if not found:
        raise ValueError("a mean of nothing")
    return Compute(*(float(np.mean(column)) for column in zip(*found, strict=True)))


def on_the_line(known: Mapping[int, Compute], batch_size: int) -> Compute:
    """Computing at a local batch, from those that were measured: on the line through its neighbours on both sides.

    Beyond the measured ones that line goes on. From one batch alone all but the optimizer's part is taken to grow with
    the samples. Raises ValueError where none was measured.
    """
    if not known:
        raise ValueError("computing was measured at no batch")
    if batch_size in known:
        return known[batch_size]
    sizes = sorted(known)
    if len(sizes) == 1:
        only, ratio = known[sizes[0]], batch_size / sizes[0]
        return Compute(only.before_s * ratio, only.backward_s * ratio, only.after_s)
    upper = min(max(bisect(sizes, batch_size), 1), len(sizes) - 1)
    low, high = sizes[upper - 1], sizes[upper]
    share = (batch_size - low) / (high - low)

    def part(first: float, last: float) -> float:
        # More samples take no less time: a part that seems to take less says how far it varies, and goes on as it is.
        at = share if last >= first else min(max(share, 0.0), 1.0)
        return max(0.0, first + at * (last - first))

    return Compute(*map(part, known[low], known[high]))


@once_per_cell
def beside_messages(cell: Cell) -> Compute | None:
    """In the timed steps of a cell; None where no part of them is known."""
    steps = cell.collect(steps_of_ranks(cell, *BEFORE, "backward_s", *AFTER))
    return _mean(steps)


@once_per_cell
def by_itself(cell: Cell) -> Compute | None:
    """In its steps without synchronisation, which run on as many cores; None where it has none."""
    steps = cell.unsynchronised
    if steps.is_empty():
        return None
    return _mean(taken_apart(steps, cell.spans.clear()))


def _mean(steps: pl.DataFrame) -> Compute | None:
    means = steps.select(pl.col(*BEFORE, "backward_s", *AFTER).mean()).row(0, named=True)
    if means["backward_s"] is None:
        return None
    before, after = (sum(means[name] or 0.0 for name in names) for names in (BEFORE, AFTER))
    return Compute(before, means["backward_s"], after)


@dataclass(frozen=True)
class Ranks:
    """How the computing of ranks differs, of a cell, as shares of its mean; rows are steps, columns are ranks."""

    rank: NDArray[np.float64]
    """Of each rank, what it always has more than the mean."""
    shared: NDArray[np.float64]
    """Of each step, what all ranks have more than usual, in the order of time."""
    rest: NDArray[np.float64]
    """What is left, of all ranks and steps: of shape (steps, ranks)."""

    @property
    def own(self) -> NDArray[np.float64]:
        """The rest as a rank draws it by itself: what is left after a mean of so many was taken out varies less."""
        count = self.rest.shape[1]
        return self.rest.ravel() * (np.sqrt(count / (count - 1)) if count > 1 else 1.0)

    @property
    def common(self) -> NDArray[np.float64]:
        """What all ranks share, as any number of ranks draws it: a mean of few still has some of their own in it."""
        count, own = self.rest.shape[1], float(self.own.var())
        seen = float(self.shared.var())
        if count == 1 or seen <= 0:
            return self.shared
        return np.asarray(self.shared * np.sqrt(max(0.0, 1 - own / count / seen)))

    @property
    def factors(self) -> NDArray[np.float64]:
        """Computing of each rank in each measured step, as a share of the mean."""
        return 1 + self.rank + self.shared[:, None] + self.rest

    block: NDArray[np.int64]
    """Number of the block of each step."""
    world_s: NDArray[np.float64]
    """How long each step took (s), from the last rank's end to the next (§8)."""


@once_per_cell
def ranks_of(samples: Cell) -> Ranks | None:
    """How the ranks of a cell differ in what they compute in a step; None with fewer than two steps.

    One worker cannot tell what is its own from what all would share: all is taken for its own (method.md §14).
    """
    computed = pl.col("step_s") - pl.col("exposed_sync_s").fill_null(0.0)
    order = timed_steps(samples).select("session", "block", "step", "world_s").with_row_index("row")
    steps = samples.collect(steps_of_ranks(samples, "rank", "step_s", "exposed_sync_s"))
    wide = (
        steps.select("session", "step", "rank", computed.alias("s"))
        .pivot("rank", index=("session", "step"), values="s", aggregate_function="first")
        .join(order, on=("session", "step"))
        .sort("row")
        .drop_nulls()
    )
    if wide.height < 2:
        return None
    blocks = wide.select(pl.struct("session", "block").rank("dense")).to_series().to_numpy().astype(np.int64)
    values = wide.drop("session", "step", "row", "block", "world_s").to_numpy()
    shares = values / values.mean() - 1
    rank = shares.mean(axis=0)
    shared = shares.mean(axis=1) if shares.shape[1] > 1 else np.zeros(len(shares))
    rest = shares - rank - shared[:, None]
    return Ranks(rank, shared, rest, blocks, wide["world_s"].to_numpy())
