"""What a loop of the user's own sends beside the buckets of DDP, and how often these travel (method.md §12)."""

from dataclasses import dataclass

import polars as pl

from worldsize.analysis.steps import BLOCK, timed_steps
from worldsize.results.folder import Cell
from worldsize.results.step_records import OF_SOME_RANKS

MAX_STEPS = 50
"""Steps of a run that are looked at to see in which backwards it synchronises."""
OF_DDP = ("broadcast", f"broadcast{OF_SOME_RANKS}")
"""Kinds of messages that DDP itself sends beside its buckets."""
_LISTS = ("kind", "payload_bytes", "blocking", "ready_s", "issued_s", "done_s")


@dataclass(frozen=True)
class Sends:
    """Of the timed steps of a loop that DDP synchronises."""

    backwards: int
    """Of a step; with accumulated gradients one for each micro-batch."""
    synchronised: int
    """In how many of them buckets travel."""
    own: tuple[tuple[str, float, float], ...]
    """Collectives that the loop calls itself: kind, how many a step, bytes of each."""
    own_s: pl.DataFrame
    """By session and block: `own_s`, what a rank is held by them in a step (s), mean over ranks."""


def sends_of(cell: Cell) -> Sends | None:
    """What a loop of the user's own sends; None of others, and where no bucket of DDP was seen."""
    settings = cell.record.settings
    if cell.record.world_size == 1 or (settings is not None and settings.program is None):
        return None
    spans = cell.scan_spans()
    if cell.collect(spans.select(pl.any_horizontal(pl.col("ready_s", "blocking").is_null()).any())).item():
        return None  # lines of schema 1, which do not say it
    steps = timed_steps(cell).select(*BLOCK, "step")
    spans = spans.select("rank", "session", "step", *_LISTS).explode(*_LISTS)
    each = cell.collect(spans.join(steps.lazy(), on=["session", "step"])).drop_nulls("kind")
    if each.is_empty() or each["ready_s"].is_null().all():
        return None
    ranks = cell.record.placement.processes if cell.record.placement else cell.record.world_size
    held = pl.when(pl.col("blocking")).then(pl.col("done_s") - pl.col("issued_s")).otherwise(0.0)
    own = each.filter(pl.col("ready_s").is_null() & ~pl.col("kind").is_in(OF_DDP))
    kinds = own.group_by("kind").agg(pl.len().alias("count"), pl.col("payload_bytes").mean()).sort("kind")
    made = steps.group_by(*BLOCK).len("steps").join(own.group_by(*BLOCK).agg(held.sum().alias("held_s")), on=BLOCK)
    return Sends(
        *_backwards(cell, each),
        own=tuple((kind, count / steps.height / ranks, size) for kind, count, size in kinds.iter_rows()),
        own_s=made.select(*BLOCK, (pl.col("held_s") / pl.col("steps") / ranks).alias("own_s")),
    )


def _backwards(cell: Cell, each: pl.DataFrame) -> tuple[int, int]:
    """Backwards of a usual step, and in how many of them a bucket was ready, on the first rank."""
    first = each["rank"].min()
    buckets = each.filter((pl.col("rank") == first) & pl.col("ready_s").is_not_null())
    ready = buckets.group_by("session", "step").agg("ready_s")
    columns = cell.step_columns("rank", "session", "step", "phases", "phase_ends_s").filter(pl.col("rank") == first)
    found = columns.join(ready, on=["session", "step"]).drop_nulls("phases").head(MAX_STEPS)
    pairs = [_of_step(*row) for row in found.select("phases", "phase_ends_s", "ready_s").iter_rows()]
    return max(set(pairs), key=pairs.count) if pairs else (1, 1)


def _of_step(phases: list[str], ends_s: list[float], ready_s: list[float]) -> tuple[int, int]:
    """How many backwards a step has, and to how many of them its buckets belong: to the last that had begun."""
    begins = [ends_s[place - 1] if place else 0.0 for place, name in enumerate(phases) if name == "backward"]
    return len(begins), len({sum(begin <= ready for begin in begins) for ready in ready_s})
