"""One real step of a cell as a picture: which step, and where its parts and messages lie on one clock.

What is recorded of a step are its begin, the length of each part in a known order, and when each message was issued
and done. The place of a part follows from these: see `lay_out`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl

from worldsize.analysis.clocks import CLOCK, NEEDED, interpolated
from worldsize.analysis.communication import aligned
from worldsize.analysis.intervals import Interval, Intervals, difference, length, union
from worldsize.analysis.summary import world_steps
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS

MOST_RANKS = 8
MOST_STRETCHES = 200
"""Stretches of a communication lane: more than that cannot be told apart on a screen."""
RESOLUTION = 1 / 600
"""Share of the picture's width below which a gap between messages cannot be seen."""
ASYNCHRONOUS = "all_reduce"
"""The one kind of message that a rank may have under way while it computes (strategies/channel.py)."""
FIRST_PARTS = ("data_wait_s", "copy_s", "forward_s", "backward_s")

Stretch = tuple[str, int, int]
"""A part of PARTS, its begin and its end (ns)."""


@dataclass(frozen=True)
class RankPicture:
    """One rank in the step; ns after the first rank's begin, on rank 0's clock."""

    rank: int
    start_ns: int
    end_ns: int
    compute: tuple[Stretch, ...]
    """The parts of the step in order; exposed communication is one of them."""
    wait: tuple[Interval, ...]
    """Some message was issued, and the last rank had not issued it yet."""
    transfer: tuple[Interval, ...]
    messages: int
    parts_s: dict[str, float]


@dataclass(frozen=True)
class StepPicture:
    """One timed step of a cell, all its ranks on one clock."""

    cell_id: str
    strategy: str
    world_size: int
    batch_size: int
    session: int
    step: int
    step_s: float
    """Its slowest rank's time."""
    median_s: float
    """Of all timed steps; the picture is of the step that is nearest."""
    ranks: tuple[RankPicture, ...]
    """Those that are drawn, in order."""
    processes: int
    """How many there are."""
    clock_error_s: float

    @property
    def name(self) -> str:
        """What it is called where all have the same batch."""
        return f"{self.strategy}, N = {self.world_size}"

    @property
    def end_ns(self) -> int:
        """When the last of the drawn ranks ends."""
        return max(rank.end_ns for rank in self.ranks)


def picture(cell: Cell) -> StepPicture | None:
    """The timed step of a cell whose time is nearest the median; None without a timed step."""
    slowest = world_steps(cell)
    if slowest.is_empty():
        return None
    median_s = float(slowest.select(pl.col("step_s").median()).item())
    chosen = slowest.sort((pl.col("step_s") - median_s).abs(), "session", "step").row(0, named=True)
    where = (pl.col("session") == chosen["session"]) & (pl.col("step") == chosen["step"])
    steps = _on_one_clock(cell, cell.collect(cell.scan_steps().filter("timed", where)))
    settings = cell.record.settings
    return StepPicture(
        cell_id=cell.record.id,
        strategy=settings.strategy,
        world_size=settings.world_size,
        batch_size=settings.batch_size,
        session=chosen["session"],
        step=chosen["step"],
        step_s=chosen["step_s"],
        median_s=median_s,
        ranks=_ranks(steps, cell.collect(cell.scan_spans().filter(where))),
        processes=steps.height,
        clock_error_s=int(steps.select(pl.col("clock_error_ns").max()).item()) / 1e9,
    )


def _on_one_clock(cell: Cell, steps: pl.DataFrame) -> pl.DataFrame:
    """The ranks of one step, with the clocks of all steps of its turn."""
    of_turn = (pl.col("session") == steps["session"][0]) & (pl.col("block") == steps["block"][0])
    turn = interpolated(cell.collect(cell.scan_steps().filter(of_turn).select("step", *NEEDED)))
    here = turn.filter(pl.col("step") == steps["step"][0]).select("rank", *CLOCK)
    return steps.drop(CLOCK).join(here, on="rank", how="left", maintain_order="left")


def _ranks(steps: pl.DataFrame, spans: pl.DataFrame) -> tuple[RankPicture, ...]:
    """The ranks that are drawn, from the step and the spans of all of them."""
    origin = int(steps.select((pl.col("start_ns") + pl.col("clock_offset_ns")).min()).item())
    chosen = drawn_ranks(steps, MOST_RANKS)
    messages = aligned(spans, steps).filter(pl.col("rank").is_in(chosen))
    return tuple(
        _rank(row, messages.filter(pl.col("rank") == row["rank"]), origin)
        for row in steps.filter(pl.col("rank").is_in(chosen)).sort("rank").iter_rows(named=True)
    )


def _rank(step: Mapping[str, Any], messages: pl.DataFrame, origin: int) -> RankPicture:
    start = step["start_ns"] + step["clock_offset_ns"] - origin
    parts_s = {part: float(step[part]) for part in PARTS}
    points = messages.select("kind", *(pl.col(f"{point}_ns") - origin for point in ("issued", "started", "done")))
    rows: list[tuple[str, int, int, int]] = points.rows()
    transfer = union((started, done) for _, _, started, done in rows)
    spans = [(kind, issued - start, done - start) for kind, issued, _, done in rows]
    compute = tuple((part, start + begin, start + end) for part, begin, end in lay_out(parts_s, spans))
    return RankPicture(
        rank=step["rank"],
        start_ns=start,
        end_ns=start + round(1e9 * sum(parts_s.values())),
        compute=compute,
        wait=tuple(difference(union((issued, started) for _, issued, started, _ in rows), transfer)),
        transfer=tuple(transfer),
        messages=len(rows),
        parts_s=parts_s,
    )


def lay_out(parts_s: Mapping[str, float], messages: Iterable[tuple[str, int, int]]) -> list[Stretch]:
    """Where the parts of a step lie in it, from their lengths and its messages (kind, issued, done; ns in the step).

    The parts come in the order of PARTS; exposed communication lies where messages are (method.md §3), and the other
    parts fill what is left. Every message but an all-reduce holds its rank, which then computes nothing; of the
    all-reduces, which may be hidden behind backward, the last ones are exposed. What of *other* lies before the last
    message (the averaging on a root) is drawn there, the rest after the optimizer.
    """
    parts = {part: round(1e9 * parts_s[part]) for part in PARTS}
    exposed = _exposed(parts["exposed_sync_s"], sum(parts.values()), messages)
    missing = parts["exposed_sync_s"] - length(exposed)  # of a folder without its spans
    free = difference([(0, sum(parts.values()) + 1)], exposed)
    before = exposed[-1][1] - length(exposed) if exposed else 0
    between = min(parts["other_s"], max(0, before - sum(parts[part] for part in FIRST_PARTS)))
    order = [
        *((part, parts[part]) for part in FIRST_PARTS),
        ("other_s", between),
        ("exposed_sync_s", max(0, missing)),
        ("optimizer_s", parts["optimizer_s"]),
        ("other_s", parts["other_s"] - between),
    ]
    stretches = [*_poured(order, free), *(("exposed_sync_s", begin, end) for begin, end in exposed)]
    return sorted(stretches, key=lambda stretch: stretch[1])


def _exposed(wanted: int, step: int, messages: Iterable[tuple[str, int, int]]) -> Intervals:
    """The stretches of exposed communication, `wanted` long in all."""
    spans = [(kind, max(0, issued), min(step, done)) for kind, issued, done in messages]
    held = union((issued, done) for kind, issued, done in spans if kind != ASYNCHRONOUS)
    rest = difference(union((issued, done) for _, issued, done in spans), held)
    return union([*held, *_last(rest, wanted - length(held))])


def _last(intervals: Intervals, wanted: int) -> Intervals:
    """The last `wanted` ns of a union."""
    found: Intervals = []
    for begin, end in reversed(intervals):
        if wanted <= 0:
            break
        found.append((max(begin, end - wanted), end))
        wanted -= end - begin
    return found[::-1]


def _poured(order: Iterable[tuple[str, int]], free: Intervals) -> Iterator[Stretch]:
    """Lengths one after the other, over stretches that are free."""
    at, (begin, end) = 0, free[0]
    for part, left in order:
        while left > 0:
            if begin >= end:
                at += 1
                if at == len(free):
                    return
                begin, end = free[at]
                continue
            taken = min(left, end - begin)
            yield part, begin, begin + taken
            begin, left = begin + taken, left - taken


def drawn_ranks(ranks: pl.DataFrame, most: int) -> list[int]:
    """At most `most` ranks of a frame with `rank`, `step_s` and `exposed_sync_s`, one row per rank.

    Where there are more: rank 0, and as many from the one that works longest to the one that works least. Ranks of a
    synchronised step end together; the slowest is the one that the others wait for, so the one that waits least.
    """
    if ranks.height <= most:
        return ranks["rank"].sort().to_list()
    order = ranks.sort(pl.col("step_s") - pl.col("exposed_sync_s"), "rank", descending=[True, False])["rank"]
    picks = most - 1
    chosen = {order[round(place * (order.len() - 1) / (picks - 1))] for place in range(picks)}
    return sorted({0, *chosen})


def merged(intervals: Iterable[Interval], gap: int, most: int = MOST_STRETCHES) -> Intervals:
    """Neighbours no further apart than `gap`, or than it takes to be at most `most`, as one stretch."""
    found, gap = union(intervals), max(1, gap)
    while True:
        closed = [(begin, end - gap) for begin, end in union((begin, end + gap) for begin, end in found)]
        if len(closed) <= most:
            return closed
        gap *= 2


def rastered(stretches: Sequence[Stretch], width: int) -> list[Stretch]:
    """Stretches on a raster of `width` ns: each of its fields has the part that fills most of it.

    So a picture has no more of them than it has pixels, however many gaps there are between small messages.
    """
    fields = 1 + max((end for _, _, end in stretches), default=0) // width
    edges = np.arange(fields + 1, dtype=np.float64) * width
    filled = np.zeros((len(PARTS) + 1, fields))
    filled[-1] = width / 2  # less than half a field is nothing
    for part, begin, end in stretches:
        filled[PARTS.index(part)] += np.clip(np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin), 0, None)
    winners = filled.argmax(axis=0)
    turns = np.flatnonzero(np.diff(winners, prepend=-1, append=-1))
    return [
        (PARTS[winners[begin]], int(begin) * width, int(end) * width)
        for begin, end in pairwise(turns)
        if winners[begin] < len(PARTS)
    ]
