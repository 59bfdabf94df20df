"""Steps taken apart: from the marks of a step and its messages to its parts (method.md §2, §3).

A step is a row of stretches, and each stretch counts to one part. A rank computes in forward, in backward until its
last gradient is there, and in the optimizer, except while a blocking message holds it. Exposed communication is the
union of the messages outside of that; it is taken out of the stretch it lies in, so that the parts add up to the time
of the step. Work of the synchronisation that is no message (the root's averaging) is *other*, and so is bookkeeping
after the optimizer.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from worldsize.analysis.once import once_per_cell
from worldsize.results.folder import Cell
from worldsize.results.records import BESIDE_PARTS, PARTS, STEP_PARTS
from worldsize.results.step_records import ENDS, PHASES

STEP = ("rank", "session", "step")
FIXED = ("data_wait", "copy", "forward", "backward", "after_backward", "other", "optimizer", "other")
"""The stretches of a step of worldsize's own training: between the marks of ENDS, with the last gradient in backward;
the last one ends with the step."""
COMPUTING = frozenset(("forward", "backward", "optimizer"))
"""Stretches in which the rank computes. In the others it does nothing of its step: all communication is exposed."""
UNSEEN = "unknown"
"""The name of a stretch that says: some messages of the step were not recorded."""
MESSAGES = ("issued_s", "done_s", "blocking", "awaited_s")
IN_MESSAGES = ("exposed_sync_s", "comm_s", "overlapped_s")
END_OF = {name: f"{name.removesuffix('_s')}_end_s" for name in STEP_PARTS if name not in (*IN_MESSAGES, "other_s")}
"""Part → the mark of ENDS at which its phase ends."""
THREADS = 2
"""Pieces that are worked on at a time: half of the time is spent without Python's lock (3.0 s became 2.1 s)."""
MAX_MESSAGES = 500_000
"""Messages of a piece; some 50 MB."""
MAX_STEPS = 50_000
"""Steps of a piece, where they have few messages."""

Nanoseconds = NDArray[np.int64]
"""After the start of the step; one row per step."""


@once_per_cell
def with_parts(cell: Cell) -> pl.LazyFrame:
    """`Cell.scan_steps` with the parts of each step (PARTS), `comm_s` and `overlapped_s` (s), in the same order.

    A part is null where its phase was not marked; in a loop of the user's own, where no timed step of the cell has it,
    or messages of the step were not recorded. Lines of schema 1 hold their parts from when they were recorded.
    """
    steps = cell.scan_steps()
    marked = pl.any_horizontal(pl.col(*ENDS, "phases").is_not_null()).any().alias("marked")
    occurring = (_listed(part).filter("timed").any().alias(part) for part in END_OF)
    found = cell.collect(steps.select(marked, *occurring)).row(0, named=True)
    if not found.pop("marked"):
        return steps.with_columns(pl.lit(None, pl.Float64).alias(part) for part in BESIDE_PARTS)
    return _kept(cell, _in_pieces(cell, steps, [part for part, there in found.items() if there]))


def _in_pieces(cell: Cell, steps: pl.LazyFrame, occurring: Collection[str]) -> Iterator[pl.DataFrame]:
    """The steps of some ranks at a time, taken apart."""
    spans, rank = cell.scan_spans(), pl.col("rank")
    counts = cell.collect(steps.group_by("rank").len().sort("rank"))
    ranks, rows = counts["rank"].to_list(), int(counts["len"].max())  # type: ignore[arg-type] # it is not empty
    # All ranks of a step send as many messages, so those of the first rank tell how many ranks fit at a time.
    of_first = spans.filter(rank == ranks[0]).select(pl.col("kind").list.len().sum())
    each = cell.collect(of_first).item() or 0
    width = max(1, min(MAX_MESSAGES // max(1, each), MAX_STEPS // max(1, rows)))

    def piece(begin: int) -> pl.DataFrame:
        here = rank.is_between(ranks[begin], ranks[begin : begin + width][-1])
        return taken_apart(cell.collect(steps.filter(here)), cell.collect(spans.filter(here)), occurring)

    with ThreadPoolExecutor(THREADS) as threads:
        begins = range(0, len(ranks), width)
        for number in range(0, len(begins), THREADS):  # not all at once: pieces that wait to be kept take memory
            yield from threads.map(piece, begins[number : number + THREADS])


def _kept(cell: Cell, pieces: Iterator[pl.DataFrame]) -> pl.LazyFrame:
    """All pieces: in memory, or those of a large cell on a disk."""
    if not cell.large:
        return pl.concat(pieces).lazy()
    files = []
    for number, piece in enumerate(pieces):
        files.append(cell.scratch / f"parts-{number}.parquet")
        piece.write_parquet(files[-1])
    return pl.scan_parquet(files, glob=False, hive_partitioning=False)


def taken_apart(steps: pl.DataFrame, spans: pl.DataFrame, occurring: Collection[str] = ()) -> pl.DataFrame:
    """Step records with their parts, from their marks and their messages; rows and their order stay.

    `occurring` are the parts that some timed step of the cell has. Where a row of stretches lacks one of these, the
    step had nothing of it: a loop may fetch a batch for several steps, or on one rank for all. So means over all steps
    and ranks add up.
    """
    parts = {name: np.zeros(steps.height, np.int64) for name in (*PARTS, "overlapped_s")}
    for rows, here, exposed, hidden in stretches_of(steps, messages_of(steps, spans)):
        parts["overlapped_s"][rows] = hidden
        parts["exposed_sync_s"][rows] = exposed.sum(axis=1)
        for place, name in enumerate(here.names):
            parts[PHASES[name]][rows] += here.ends[:, place] - here.starts[:, place] - exposed[:, place]
    parts["comm_s"] = parts["exposed_sync_s"] + parts["overlapped_s"]
    # Where no phase was marked a line of schema 1 has its parts, and another one has none.
    unmarked = pl.all_horizontal(pl.col(ENDS).is_null()) & pl.col("phases").is_null()
    return steps.with_columns(
        pl.when(_absent(name, occurring))
        .then(pl.when(unmarked).then(name) if name in steps.columns else None)
        .otherwise(pl.Series(values / 1e9))
        .alias(name)
        for name, values in parts.items()
    )


def messages_of(steps: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """The messages of each of the steps, in their order: lists of MESSAGES, awaited_s NaN or null where none was."""
    sent = spans.select(*STEP, *MESSAGES)
    if not sent.select(STEP).equals(steps.select(STEP)):  # mostly it does, and a join takes long
        once = sent.unique(STEP, keep="last", maintain_order=True)
        sent = steps.select(STEP).join(once, on=STEP, how="left", maintain_order="left")
    if sent["blocking"].null_count() > sent["issued_s"].null_count():  # lines of schema 1, in a cell of both
        sent = sent.with_columns(pl.col("blocking").fill_null(pl.col("issued_s").list.eval(pl.element().is_null())))
    return sent.with_columns(pl.col("awaited_s").fill_null(pl.col("issued_s").list.eval(pl.element() * float("nan"))))


class Held(NamedTuple):
    """Steps of one layout and with as many messages, and what of them was communication."""

    rows: NDArray[np.int64]
    stretches: "Stretches"
    exposed: Nanoseconds
    """Exposed communication in each stretch."""
    hidden: Nanoseconds
    """What is hidden behind compute, in each step."""


def stretches_of(steps: pl.DataFrame, sent: pl.DataFrame) -> Iterator[Held]:
    """All steps, those of one layout and with as many messages together; `sent` are those of `messages_of`."""
    counts = sent["issued_s"].list.len().fill_null(0).to_numpy()
    for there, stretches in layouts(steps):
        for count in np.unique(counts[there]):
            among = np.flatnonzero(counts[there] == count)
            rows, here = there[among], stretches.rows(among)
            exposed, hidden = np.zeros_like(here.ends), np.zeros(len(rows), np.int64)
            if count:
                some = sent if len(rows) == sent.height else sent[rows]  # mostly all, and picking them takes long
                messages = (some[name].explode().to_numpy().reshape(-1, count) for name in MESSAGES)
                issued, done, blocking, awaited = messages
                later = np.where(np.isnan(awaited), done, np.clip(awaited, issued, done))
                held_from = np.where(blocking.astype(bool), issued, later)
                exposed, hidden = _exposed(here, _ns(issued), _ns(done), _ns(held_from))
            yield Held(rows, here, exposed, hidden)


def _absent(part: str, occurring: Collection[str]) -> pl.Expr:
    """Whether what this part is made of was not marked.

    If messages of the step were not recorded, no part is known: any stretch may have waited for them.
    """
    names, fixed = pl.col("phases"), pl.all_horizontal(pl.col(ENDS).is_null())
    unknown = names.list.contains(UNSEEN)
    if part in BESIDE_PARTS:
        return names.is_null() | unknown
    if part in END_OF:
        fixed = pl.col(END_OF[part]).is_null()
        unknown = unknown if part in occurring else unknown | ~_listed(part)
    return pl.when(names.is_null()).then(fixed).otherwise(unknown)


def _listed(part: str) -> pl.Expr:
    """Whether a row of stretches has one that counts to this part."""
    return pl.any_horizontal(pl.col("phases").list.contains(name) for name, of in PHASES.items() if of == part)


class Stretches(NamedTuple):
    """What some steps consisted of, one after the other: of shape (steps, stretches)."""

    names: tuple[str, ...]
    ends: Nanoseconds

    @property
    def starts(self) -> Nanoseconds:
        """Each begins where the one before it ends."""
        return np.hstack([np.zeros((len(self.ends), 1), np.int64), self.ends[:, :-1]])

    def rows(self, rows: NDArray[np.int64]) -> Self:
        """Those of some of the steps."""
        return self._replace(ends=self.ends[rows])


def layouts(steps: pl.DataFrame) -> Iterator[tuple[NDArray[np.int64], Stretches]]:
    """Rows of the steps that consisted of the same stretches, and these."""
    fixed = np.flatnonzero(steps["phases"].is_null().to_numpy())
    if fixed.size:
        yield fixed, _fixed(steps.gather(fixed) if fixed.size < steps.height else steps)
    if fixed.size == steps.height:
        return
    others = steps.select("phases", "phase_ends_s", "step_s").with_row_index("row")
    others = others.filter(pl.col("phases").is_not_null())
    for (joined,), same in others.group_by(pl.col("phases").list.join(","), maintain_order=True):
        names = tuple(str(joined).split(","))
        ends = same["phase_ends_s"].explode().to_numpy().reshape(-1, len(names))
        whole = _ns(np.hstack([ends, same["step_s"].to_numpy()[:, None]]))
        whole[:, :-1] = np.minimum(whole[:, :-1], whole[:, -1:])
        yield same["row"].to_numpy().astype(np.int64), Stretches((*names, "other"), whole)


def _fixed(steps: pl.DataFrame) -> Stretches:
    """From the marks of ENDS; a phase that was not marked takes no time."""
    marks = [pl.coalesce(*ENDS[place::-1], pl.lit(0.0)).alias(str(place)) for place in range(len(ENDS))]
    ends = _ns(steps.select(*marks, "step_s").to_numpy())
    backward = FIXED.index("backward")
    start, end = ends[:, backward - 1], ends[:, backward]
    last = steps["last_gradient_s"].to_numpy()
    # One before backward is of another backward, as of a second model: it ends nothing here.
    seen = np.nan_to_num(last, nan=-1.0) * 1e9 >= start
    computed = np.where(seen, np.minimum(_ns(np.nan_to_num(last)), end), end)
    return Stretches(FIXED, np.insert(ends, backward, computed, axis=1))


def _ns(seconds: NDArray[np.float64]) -> Nanoseconds:
    return np.rint(seconds * 1e9).astype(np.int64)


def _exposed(
    stretches: Stretches, issued: Nanoseconds, done: Nanoseconds, held_from: Nanoseconds
) -> tuple[Nanoseconds, Nanoseconds]:
    """Exposed communication in each stretch, and what is hidden behind compute in each step.

    Messages are of shape (steps, messages), in any order; one that never holds the rank does so from its end on.
    """
    holds = held_from < done
    sent = _disjoint(issued, done)
    held = _disjoint(np.where(holds, held_from, issued), np.where(holds, done, issued))
    starts = stretches.starts
    exposed, overlapped = np.zeros_like(stretches.ends), np.zeros(len(issued), np.int64)
    for place, name in enumerate(stretches.names):
        start, end = starts[:, place], stretches.ends[:, place]
        exposed[:, place] = _within(held if name in COMPUTING else sent, start, end)
        if name in COMPUTING:
            overlapped += _within(sent, start, end) - exposed[:, place]
    return exposed, overlapped


def _disjoint(begin: Nanoseconds, end: Nanoseconds) -> tuple[Nanoseconds, Nanoseconds]:
    """The same union of each row's intervals, in any order, as intervals that do not overlap."""
    if (begin[:, 1:] < begin[:, :-1]).any():  # mostly they are in order, and sorting many short rows takes long
        order = np.argsort(begin, axis=1, kind="stable")
        begin, end = np.take_along_axis(begin, order, axis=1), np.take_along_axis(end, order, axis=1)
    reached = np.maximum.accumulate(end, axis=1)
    begin = np.hstack([begin[:, :1], np.maximum(begin[:, 1:], reached[:, :-1])])
    return begin, np.maximum(begin, end)


def _within(intervals: tuple[Nanoseconds, Nanoseconds], start: Nanoseconds, end: Nanoseconds) -> Nanoseconds:
    """What of each row's disjoint intervals lies between its start and its end."""
    begins, ends = intervals
    lengths = np.minimum(ends, end[:, None]) - np.maximum(begins, start[:, None])
    within: Nanoseconds = np.maximum(lengths, 0).sum(axis=1)
    return within
