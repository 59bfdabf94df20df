"""One real step of a cell as a picture: which step, and where its parts and messages lie on one clock."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl

from worldsize.analysis.clocks import CLOCK, NEEDED, interpolated
from worldsize.analysis.intervals import Interval, Intervals, difference, intersection, union
from worldsize.analysis.messages import aligned
from worldsize.analysis.parts import COMPUTING, layouts, with_parts
from worldsize.analysis.steps import world_steps
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS
from worldsize.results.step_records import ENDS, PHASES

MAX_RANKS = 8
MAX_STRETCHES = 200
"""Stretches of a communication lane: more than that cannot be distinguished on a screen."""
RESOLUTION = 1 / 600
"""Share of the picture's width below which a gap between messages cannot be seen."""
Stretch = tuple[str, int, int]
"""A part of PARTS, its start and its end (ns)."""
Sent = tuple[int, int, bool]
"""A message: issued, done (ns), and whether its rank computed nothing meanwhile."""


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
    """The timed step of a cell whose time is nearest the median.

    None without a timed step, and where its phases were not marked, as in runs of schema 1.
    """
    slowest = world_steps(cell)
    if slowest.is_empty():
        return None
    median_s = float(slowest.select(pl.col("step_s").median()).item())
    chosen = slowest.sort((pl.col("step_s") - median_s).abs(), "session", "step").row(0, named=True)
    where = (pl.col("session") == chosen["session"]) & (pl.col("step") == chosen["step"])
    steps = _on_one_clock(cell, cell.collect(with_parts(cell).filter("timed", where)))
    marked = pl.all_horizontal(pl.col(ENDS).is_not_null()) | pl.col("phases").is_not_null()
    if not steps.select(marked.all()).item():
        return None
    record = cell.record
    return StepPicture(
        cell_id=record.id,
        strategy=record.strategy,
        world_size=record.world_size,
        batch_size=record.batch_size,
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
    chosen = drawn_ranks(steps, MAX_RANKS)
    messages = aligned(spans, steps).filter(pl.col("rank").is_in(chosen))
    return tuple(
        _rank(row, messages.filter(pl.col("rank") == row["rank"][0]), origin)
        for row in steps.filter(pl.col("rank").is_in(chosen)).sort("rank").iter_slices(1)
    )


def _rank(row: pl.DataFrame, messages: pl.DataFrame, origin: int) -> RankPicture:
    [step], [(_, stretches)] = row.to_dicts(), layouts(row)
    start = step["start_ns"] + step["clock_offset_ns"] - origin
    points = messages.select("blocking", *(pl.col(f"{point}_ns") - origin for point in ("issued", "started", "done")))
    rows: list[tuple[bool, int, int, int]] = points.rows()
    transfer = union((started, done) for _, _, started, done in rows)
    ends = [start + int(end) for end in stretches.ends[0]]
    sent = [(issued, done, blocking) for blocking, issued, _, done in rows]
    sent += [(awaited, done, True) for awaited, done in _waits(messages, start, origin)]
    return RankPicture(
        rank=step["rank"],
        start_ns=start,
        end_ns=ends[-1],
        compute=tuple(lay_out(start, stretches.names, ends, sent)),
        wait=tuple(difference(union((issued, started) for _, issued, started, _ in rows), transfer)),
        transfer=tuple(transfer),
        messages=len(rows),
        parts_s={part: float(step[part]) for part in PARTS if step[part] is not None},
    )


def _waits(messages: pl.DataFrame, start: int, origin: int) -> list[Interval]:
    """When the rank waited for messages that had not blocked it from their issue on (ns); `start` is of the step."""
    if "awaited_s" not in messages.columns:
        return []
    begin, end = (pl.col("awaited_s") * 1e9).round().cast(pl.Int64) + start, pl.col("done_ns") - origin
    return messages.select(begin.alias("begin"), end.alias("end")).filter(pl.col("begin") < pl.col("end")).rows()


def lay_out(start: int, names: Sequence[str], ends: Sequence[int], messages: Iterable[Sent]) -> list[Stretch]:
    """Where the parts of a step lie: its stretches, but for the exposed communication in them (analysis/parts.py)."""
    sent = list(messages)
    stretches = list(zip(names, [start, *ends[:-1]], ends, strict=True))
    held = union((issued, done) for issued, done, blocking in sent if blocking)
    compute = difference(union((begin, end) for name, begin, end in stretches if name in COMPUTING), held)
    exposed = difference(union((issued, done) for issued, done, _ in sent), compute)
    exposed = intersection(exposed, [(start, ends[-1])])
    own = ((PHASES[name], difference(union([(begin, end)]), exposed)) for name, begin, end in stretches)
    found = [(part, *each) for part, intervals in [*own, ("exposed_sync_s", exposed)] for each in intervals]
    return sorted(found, key=lambda stretch: stretch[1])


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


def merged(intervals: Iterable[Interval], gap: int, most: int = MAX_STRETCHES) -> Intervals:
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
