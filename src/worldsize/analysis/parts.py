"""Steps taken apart: from the marks of a step and its messages to its parts (method.md §2, §3).

A rank computes in forward, in backward until its last gradient is there, and in the optimizer, except while a blocking
message holds it. Exposed communication is the union of the messages outside those stretches; it is taken out of the
phase it lies in, so that the parts add up to the time of the step. Work of the synchronisation that is no message (the
root's averaging) is *other*, and so is bookkeeping after the optimizer.
"""

from collections.abc import Iterator
from typing import NamedTuple, Self
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.results.folder import Cell
from worldsize.results.step_records import ENDS

STEP = ("rank", "session", "step")
PHASES = ("data_wait_s", "copy_s", "forward_s", "backward_s", "other_s", "optimizer_s", "other_s")
"""The part to which the time of each phase counts that is no exposed communication, in the order of ENDS; the last one
ends with the step."""
FORWARD, BACKWARD, OPTIMIZER = PHASES.index("forward_s"), PHASES.index("backward_s"), PHASES.index("optimizer_s")
NAMED = [place for place, name in enumerate(PHASES) if name != "other_s"]
MOST_MESSAGES = 1_000_000
"""Messages that are worked on at a time; some hundred MB."""
MOST_STEPS = 100_000
"""Steps that are worked on at a time, where they have few messages."""

Nanoseconds = NDArray[np.int64]
"""After the begin of the step; one row per step."""

_CACHE: WeakKeyDictionary[Cell, pl.LazyFrame] = WeakKeyDictionary()
"""By cell: many ask, and of 1,024 ranks × 1,000 steps it takes 2 s."""


def with_parts(cell: Cell) -> pl.LazyFrame:
    """`Cell.scan_steps` with the parts of each step (PARTS), `comm_s` and `overlapped_s` (s), in the same order.

    A part is null where its phase was not marked. Lines of schema 1 hold their parts from when they were recorded.
    """
    if cell not in _CACHE:
        steps = cell.scan_steps()
        marked = cell.collect(steps.select(pl.any_horizontal(pl.col(ENDS).is_not_null()).any())).item()
        _CACHE[cell] = _kept(cell, _in_pieces(cell, steps)) if marked else steps
    return _CACHE[cell]


def _in_pieces(cell: Cell, steps: pl.LazyFrame) -> Iterator[pl.DataFrame]:
    """The steps of some ranks at a time, taken apart."""
    spans, rank = cell.scan_spans(), pl.col("rank")
    counts = cell.collect(steps.group_by("rank").len().sort("rank"))
    ranks, rows = counts["rank"].to_list(), int(counts["len"].max())  # type: ignore[arg-type] # it is not empty
    # All ranks of a step send as many messages, so those of the first rank tell how many ranks fit at a time.
    of_first = spans.filter(rank == ranks[0]).select(pl.col("kind").list.len().sum())
    each = cell.collect(of_first).item() or 0
    width = max(1, min(MOST_MESSAGES // max(1, each), MOST_STEPS // max(1, rows)))
    for begin in range(0, len(ranks), width):
        here = rank.is_between(ranks[begin], ranks[begin : begin + width][-1])
        yield taken_apart(cell.collect(steps.filter(here)), cell.collect(spans.filter(here)))


def _kept(cell: Cell, pieces: Iterator[pl.DataFrame]) -> pl.LazyFrame:
    """All pieces: in memory, or those of a large cell on a disk."""
    if not cell.large:
        return pl.concat(pieces).lazy()
    files = []
    for number, piece in enumerate(pieces):
        files.append(cell.scratch / f"parts-{number}.parquet")
        piece.write_parquet(files[-1])
    return pl.scan_parquet(files, glob=False, hive_partitioning=False)


def taken_apart(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Step records with their parts, from their marks and their messages; rows and their order stay."""
    lists = ("issued_s", "done_s", "blocking")
    sent = spans.select(*STEP, *lists)
    if not sent.select(STEP).equals(steps.select(STEP)):  # mostly it does, and a join takes long
        once = sent.unique(STEP, keep="last", maintain_order=True)
        sent = steps.select(STEP).join(once, on=STEP, how="left", maintain_order="left")
    if sent["blocking"].null_count() > sent["issued_s"].null_count():  # lines of schema 1, in a cell of both
        sent = sent.with_columns(pl.col("blocking").fill_null(pl.col("issued_s").list.eval(pl.element().is_null())))
    counts = sent["issued_s"].list.len().fill_null(0).to_numpy()
    phases = Phases.of(steps)
    exposed, overlapped = np.zeros_like(phases.ends), np.zeros(steps.height, np.int64)
    for count in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == count)
        issued, done, blocking = (sent[name].gather(rows).explode().to_numpy().reshape(-1, count) for name in lists)
        exposed[rows], overlapped[rows] = _exposed(phases.rows(rows), _ns(issued), _ns(done), blocking.astype(bool))
    own, communication = phases.ends - phases.starts - exposed, exposed.sum(axis=1)
    other = np.delete(own, NAMED, axis=1).sum(axis=1)
    unmarked = pl.all_horizontal(pl.col(ENDS).is_null())
    found = [
        *((PHASES[place], own[:, place], pl.col(ENDS[place]).is_null()) for place in NAMED),
        ("exposed_sync_s", communication, unmarked),
        ("other_s", other, unmarked),
        ("comm_s", communication + overlapped, unmarked),
        ("overlapped_s", overlapped, unmarked),
    ]
    # Where no phase was marked a line of schema 1 has its parts, and another one has none.
    return steps.with_columns(
        pl.when(absent).then(pl.when(unmarked).then(name)).otherwise(pl.Series(values / 1e9)).alias(name)
        for name, values, absent in found
    )


class Phases(NamedTuple):
    """The phases of steps: of shape (steps, phases), and (steps,)."""

    starts: Nanoseconds
    ends: Nanoseconds
    computed: Nanoseconds
    """When the rank had computed its last gradient, or the end of backward."""

    @classmethod
    def of(cls, steps: pl.DataFrame) -> Self:
        """From their marks; a phase that was not marked takes no time."""
        marks = [pl.coalesce(*ENDS[place::-1], pl.lit(0.0)).alias(str(place)) for place in range(len(ENDS))]
        ends = _ns(steps.select(*marks, "step_s").to_numpy())
        starts = np.hstack([np.zeros((steps.height, 1), np.int64), ends[:, :-1]])
        last = steps["last_gradient_s"].to_numpy()
        # One before backward is of another backward, as of a second model: it ends nothing here.
        seen = np.nan_to_num(last, nan=-1.0) * 1e9 >= starts[:, BACKWARD]
        computed = np.where(seen, np.minimum(_ns(np.nan_to_num(last)), ends[:, BACKWARD]), ends[:, BACKWARD])
        return cls(starts, ends, computed)

    def rows(self, rows: NDArray[np.int64]) -> Self:
        """The phases of some of the steps."""
        return self._replace(starts=self.starts[rows], ends=self.ends[rows], computed=self.computed[rows])


def _ns(seconds: NDArray[np.float64]) -> Nanoseconds:
    return np.rint(seconds * 1e9).astype(np.int64)


def _exposed(
    phases: Phases, issued: Nanoseconds, done: Nanoseconds, blocking: NDArray[np.bool_]
) -> tuple[Nanoseconds, Nanoseconds]:
    """Exposed communication in each phase, and what is hidden behind compute in each step.

    Messages are of shape (steps, messages), in any order.
    """
    if (issued[:, 1:] < issued[:, :-1]).any():  # mostly they are in order, and sorting many short rows takes long
        order = np.argsort(issued, axis=1, kind="stable")
        issued, done = np.take_along_axis(issued, order, axis=1), np.take_along_axis(done, order, axis=1)
        blocking = np.take_along_axis(blocking, order, axis=1)
    sent, held = _disjoint(issued, done), _disjoint(issued, np.where(blocking, done, issued))
    exposed, overlapped = np.zeros_like(phases.ends), np.zeros(len(issued), np.int64)
    for place in range(len(PHASES)):
        start, end = phases.starts[:, place], phases.ends[:, place]
        # In the other phases the rank computes nothing of its step: all communication in them is exposed.
        computed = phases.computed if place == BACKWARD else end if place in (FORWARD, OPTIMIZER) else start
        holding = _within(held, start, computed)
        exposed[:, place] = holding + _within(sent, computed, end)
        overlapped += _within(sent, start, computed) - holding
    return exposed, overlapped


def _disjoint(begin: Nanoseconds, end: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """The same union of each row's intervals, sorted by begin, as intervals that do not overlap."""
    reached = np.maximum.accumulate(end, axis=1)
    begin = np.hstack([begin[:, :1], np.maximum(begin[:, 1:], reached[:, :-1])])
    return begin, np.maximum(begin, end)


def _within(intervals: tuple[Nanoseconds, Nanoseconds], start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """What of each row's disjoint intervals lies between its start and its end."""
    begins, ends = intervals
    lengths = np.minimum(ends, end[:, None]) - np.maximum(begins, start[:, None])
    within: Nanoseconds = np.maximum(lengths, 0).sum(axis=1)
    return within
