"""The messages of a cell on one clock: when each was issued, started and done (method.md §3).

A cell of many ranks has millions. They are gone through some ranks at a time, and twice: who issued a message last is
known when all have been seen. What remains is a row per message of all ranks, and one per block.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.analysis.clocks import CLOCK, interpolated, pair_error_ns
from worldsize.analysis.intervals import union_lengths
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.step_records import OF_SOME_RANKS

STEP = ("rank", "session", "step")
BLOCK = ("session", "block")
MESSAGE = ("kind", "payload_bytes", "issued_s", "done_s")
"""What is always known of a message, as lists of a step."""
KINDS = {
    "all_reduce": "all-reduce",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
}
"""Messages between processes → the collective whose bus factor they have; copies inside a process are no traffic."""
OF_ALL = ~pl.col("kind").str.ends_with(OF_SOME_RANKS)
"""Whether all ranks take part in a message."""
MAX_MESSAGES = 1_000_000
"""How many are read at a time; some hundred MB with all that is made of them."""
MAX_KEPT = 5 * MAX_MESSAGES
"""How many are kept from the first round for the second, as two numbers each."""

Nanoseconds = NDArray[np.int64]
"""On rank 0's clock; of messages, one row per step and a column per message."""


def messages(cell: Cell) -> pl.DataFrame:
    """The messages of all timed steps: see `aligned`. Of many ranks they fill gigabytes."""
    return aligned(cell.spans, interpolated(cell.steps).filter("timed"))


def aligned(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """One row per message, rank and step, with issued, started and done on rank 0's clock (ns, int64).

    `steps` are whole steps, all ranks of each, with `interpolated` clocks. A message is the same on all ranks if it is
    the k-th of its step that all take part in. *Started* is when the last rank has issued it; a rank that was done
    before that (a sender to a root) never waited, so started is at most done. What is within the clocks' own error is
    no wait either. One of some ranks has no number, and starts when it is issued.
    """
    steps = steps.with_columns(pair_error_ns().over("session", "step").alias("bound_ns"))
    begin = pl.col("start_ns") + pl.col("clock_offset_ns")
    # Null in lines of schema 1, and awaited_s where the rank waited for none of the step.
    known = [name for name in ("blocking", "ready_s", "awaited_s") if not spans[name].has_nulls()]
    return (
        spans.select(*STEP, *MESSAGE, *known)
        .join(steps.select(*STEP, "block", "bound_ns", *CLOCK), on=STEP, maintain_order="left")
        .explode(*MESSAGE, *known)
        .with_columns(OF_ALL.alias("of_all"))
        .with_columns(pl.when("of_all").then(pl.col("of_all").cum_sum().over(*STEP).cast(pl.Int64) - 1).alias("number"))
        .with_columns(
            (begin + (pl.col(f"{point}_s") * 1e9).round().cast(pl.Int64)).alias(f"{point}_ns")
            for point in ("issued", "done")
        )
        .with_columns(
            pl.when("of_all")
            .then(pl.col("issued_ns").max().over("session", "step", "number"))
            .otherwise("issued_ns")
            .alias("last_issued_ns")
        )
        .with_columns(
            pl.when(pl.col("last_issued_ns") - pl.col("issued_ns") > pl.col("bound_ns"))
            .then("last_issued_ns")
            .otherwise("issued_ns")
            .alias("began_ns")
        )
        .with_columns(pl.min_horizontal("done_ns", "began_ns").alias("started_ns"))
        .drop("issued_s", "done_s", "last_issued_ns", "began_ns", "bound_ns", "of_all")
    )


@dataclass(frozen=True)
class Collectives:
    """What the ranks of a cell sent to each other in its timed steps: the messages in which all of them take part."""

    together: pl.DataFrame
    """One row per message of all ranks: session, block, step and number; kind and payload_bytes, as the first rank has
    them; issued_ns and done_ns of the last rank; last_rank (the one that issued it last, and is waited for; -1 where
    the clocks do not tell it from another) and waited_ns (how long for it, mean over ranks)."""
    unions: pl.DataFrame
    """By session and block, summed over ranks and steps: length of the union of messages from issue to end (comm_ns),
    and from start to end (transfer_ns); summed over steps: what the first is longer on the rank that waits longest
    (wait_most_ns)."""
    by_rank: pl.DataFrame
    """The same two by rank, summed over its steps; and its timed steps (steps)."""
    clock_error_ns: int
    """Largest residual error of the aligned clocks."""


def collectives(cell: Cell) -> Collectives | None:
    """The messages of all ranks in the timed steps, aligned; None where none was recorded.

    Raises OutputError for damaged spans.
    """
    steps, spans = _clocks(cell), _spans(cell)
    places = steps.filter("timed").select(*BLOCK, "step").unique(maintain_order=True).with_row_index("place")
    places = places.with_columns(pl.col("place").cast(pl.Int64))
    steps = steps.join(places, on=[*BLOCK, "step"], how="left", maintain_order="left")
    each = cell.collect(_of_rank(spans, steps["rank"].min()).select(pl.col("issued_s").list.len().sum())).item()
    width = max(1, MAX_MESSAGES // max(1, each))
    kept: list[_Batch] | None = [] if each * steps["rank"].n_unique() <= MAX_KEPT else None
    bounds = places.join(steps.group_by("place").agg(pair_error_ns().alias("bound_ns")), on="place", how="left")
    last = _Last(bounds["bound_ns"].to_numpy())
    for batch in _batches(cell, spans, steps, width):
        last.see(batch)
        if kept is not None:
            kept.append(batch)
    if not last.seen:
        return None
    comm, transfer, wait_most = (np.zeros(places.height, np.int64) for _ in range(3))
    ranks = steps.filter("timed").group_by("rank").agg(pl.len().alias("steps")).sort("rank")
    of_rank = np.zeros((2, 1 + int(ranks["rank"].to_numpy().max())), np.int64)
    for batch in _batches(cell, spans, steps, width) if kept is None else kept:
        last.blame(batch)
        started = np.minimum(batch.done, last.began(batch))
        of_all, of_transfer = union_lengths(batch.issued, batch.done), union_lengths(started, batch.done)
        np.add.at(comm, batch.place, of_all)
        np.add.at(transfer, batch.place, of_transfer)
        np.maximum.at(wait_most, batch.place, of_all - of_transfer)
        np.add.at(of_rank[0], batch.rank, of_all)
        np.add.at(of_rank[1], batch.rank, of_transfer)
    found = {"comm_ns": comm, "transfer_ns": transfer, "wait_most_ns": wait_most}
    lengths = places.with_columns(pl.Series(name, values) for name, values in found.items())
    return Collectives(
        together=_together(cell, _of_rank(spans, steps["rank"].min()), places.with_columns(last.columns())),
        unions=lengths.group_by(*BLOCK).agg(pl.col(*found).sum()),
        by_rank=ranks.with_columns(
            pl.Series(name, of_rank[at][ranks["rank"].to_numpy()]) for at, name in enumerate(("comm_ns", "transfer_ns"))
        ),
        clock_error_ns=last.clock_error_ns,
    )


@dataclass(frozen=True)
class _Batch:
    """Steps of some ranks that all have the same number of messages."""

    place: NDArray[np.int64]
    """Which step each row is."""
    rank: NDArray[np.int64]
    issued: Nanoseconds
    done: Nanoseconds
    clock_error_ns: int

    @property
    def count(self) -> int:
        return int(self.issued.shape[1])


class _Last:
    """The last rank of each message; arrays of one row per step and one column per message."""

    def __init__(self, bound_ns: Nanoseconds) -> None:
        """`bound_ns`: of each step, below what the clocks do not tell whether a rank was before another."""
        steps, self.bound = len(bound_ns), bound_ns
        self.seen = False
        self.clock_error_ns = 0
        # The same kinds as in a batch: with another integer of 64 bits, maximum.at takes ten times as long.
        self.issued, self.done, self.rank = (np.empty((steps, 0), np.int64) for _ in range(3))
        self.waited, self.ranks = np.empty((steps, 0)), np.empty((steps, 0))
        self.near = np.empty((steps, 0), np.int64)
        """How many ranks issued it last, as far as the clocks tell."""

    def _widen(self, messages: int) -> None:
        more, (least, most) = messages - self.issued.shape[1], (np.iinfo(np.int64).min, np.iinfo(np.int64).max)
        for name, first in (
            ("issued", least),
            ("done", least),
            ("rank", most),
            ("waited", 0),
            ("ranks", 0),
            ("near", 0),
        ):
            setattr(self, name, np.pad(getattr(self, name), ((0, 0), (0, more)), constant_values=first))

    def see(self, batch: _Batch) -> None:
        """Of the first round: when the last rank issued each message, and when the last one was done."""
        if batch.count > self.issued.shape[1]:
            self._widen(batch.count)
        for k in range(batch.count):
            np.maximum.at(self.issued[:, k], batch.place, batch.issued[:, k])
            np.maximum.at(self.done[:, k], batch.place, batch.done[:, k])
        self.clock_error_ns = max(self.clock_error_ns, batch.clock_error_ns)
        self.seen = True

    def blame(self, batch: _Batch) -> None:
        """Of the second: which rank that was, the first of them where several were, and how long for it."""
        for k in range(batch.count):
            wait = self.issued[batch.place, k] - batch.issued[:, k]
            np.minimum.at(self.rank[:, k], batch.place[wait == 0], batch.rank[wait == 0])
            unsure = wait <= self.bound[batch.place]
            np.add.at(self.near[:, k], batch.place[unsure], 1)
            wait[unsure] = 0
            self.waited[:, k] += np.bincount(batch.place, weights=wait, minlength=len(self.waited))
            self.ranks[:, k] += np.bincount(batch.place, minlength=len(self.ranks))

    def began(self, batch: _Batch) -> Nanoseconds:
        """When each rank's part of a message began: at the last rank's issue, where that was significantly later."""
        last = self.issued[batch.place, : batch.count]
        return np.where(last - batch.issued > self.bound[batch.place, None], last, batch.issued)

    def columns(self) -> list[pl.Series]:
        """As columns of lists, one row per step."""
        waited = self.waited / np.maximum(self.ranks, 1)
        # Of ranks that share a clock the first is named, and there is no wait for one that is not alone by its error.
        rank = np.where((self.near > 1) & (self.bound[:, None] > 0), -1, self.rank)
        found = {"issued_ns": self.issued, "done_ns": self.done, "last_rank": rank, "waited_ns": waited}
        return [pl.Series(name, values) for name, values in found.items()]


def _clocks(cell: Cell) -> pl.DataFrame:
    known = pl.col("start_ns").is_not_null()
    columns = (*STEP, "launch", "block", "timed", "step_s", *CLOCK)
    return interpolated(cell.collect(cell.scan_steps().filter(known).select(*columns))).drop("launch", "step_s")


def _spans(cell: Cell) -> pl.LazyFrame:
    """The messages in which all ranks take part, as lists of a step; only a loop of the user's own can have others."""
    spans, settings = cell.scan_spans().select(*STEP, *MESSAGE), cell.record.settings
    if settings is not None and settings.program is None:
        return spans
    each = spans.explode(*MESSAGE)
    if cell.collect(each.select(OF_ALL.all())).item():
        return spans
    return each.filter(OF_ALL).group_by(*STEP, maintain_order=True).agg(*MESSAGE)


def _of_rank(spans: pl.LazyFrame, rank: Any) -> pl.LazyFrame:
    return spans.filter(pl.col("rank") == rank)


def _batches(cell: Cell, spans: pl.LazyFrame, steps: pl.DataFrame, width: int) -> Iterator[_Batch]:
    """The messages of all timed steps, of `width` ranks at a time."""
    spans = spans.select(*STEP, "issued_s", "done_s")
    ranks = steps["rank"].unique().sort().to_list()
    for begin in range(0, len(ranks), width):
        here = pl.col("rank").is_between(ranks[begin], ranks[begin : begin + width][-1])
        rows = _matched(cell.collect(spans.filter(here)), steps.filter(here)).filter("timed")
        for (count,), alike in rows.group_by(pl.col("issued_s").list.len()):
            if count:
                yield _batch(cell, alike)


def _matched(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Each step with its spans."""
    if spans.select(STEP).equals(steps.select(STEP)):  # as it is where no rank was cut short: a join takes long
        return spans.hstack(steps.drop(STEP))
    return spans.join(steps, on=STEP, maintain_order="left")


def _batch(cell: Cell, rows: pl.DataFrame) -> _Batch:
    begin = rows.select(pl.col("start_ns") + pl.col("clock_offset_ns")).to_numpy()
    seconds = [rows[name].explode().to_numpy() for name in ("issued_s", "done_s")]
    if seconds[0].size != seconds[1].size or not all(np.isfinite(each).all() for each in seconds):
        raise OutputError(f"the spans in {cell.folder} are damaged: a message has not all of its times")
    issued, done = (
        begin + np.rint(each * 1e9).astype(np.int64).reshape(rows.height, each.size // rows.height) for each in seconds
    )
    error = rows.select(pl.col("clock_error_ns").max()).item()
    return _Batch(rows["place"].to_numpy(), rows["rank"].to_numpy(), issued, done, clock_error_ns=error)


def _together(cell: Cell, spans: pl.LazyFrame, last: pl.DataFrame) -> pl.DataFrame:
    """The messages of the first rank, with what is known of the last one."""
    of_first, of_last = ("kind", "payload_bytes"), ("issued_ns", "done_ns", "last_rank", "waited_ns")
    count = pl.col("kind").list.len()
    return (
        cell.collect(spans.select("session", "step", *of_first))
        .join(last, on=["session", "step"], maintain_order="left")
        .filter(count > 0)
        .with_columns(pl.col(of_last).arr.to_list().list.head(count), pl.int_ranges(count).alias("number"))
        .explode(*of_first, *of_last, "number")
        .select(*BLOCK, "step", "number", *of_first, *of_last)
    )
