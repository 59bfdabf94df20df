"""Ranks that the others wait for, though they do not significantly work longer."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.advice import traces
from worldsize.analysis.advice.communication import Diagnosis, limited_by, on_sync
from worldsize.analysis.advice.finding import Evidence, share, share_of, time_of
from worldsize.analysis.advice.gains import STEP_MOST, notable
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.advice.rule import Candidate, Seen, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused
from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.steps import BLOCK, COMPUTE, per_step, rank_means, ratio_over
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

WAITED = pl.min_horizontal(pl.col("exposed_most_s"), pl.col("wait_most_s"))
"""What of the exposed communication can be waiting at most, on the rank that waits longest."""

_CLOCKS = "Several ranks come last together, as far as their clocks tell: they do not agree well enough to say which."


@dataclass(frozen=True)
class Late:
    """The rank that is waited for more than chance would have it."""

    rank: int
    share: Estimate
    """Of all waiting, what was for this rank."""
    computing: Estimate | None
    """Its computing ÷ that of the other ranks."""
    data_wait: Estimate | None
    """Its data wait − that of the other ranks, as a share of the step."""


def straggler_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that is mostly waiting for a rank that comes late."""
    for sync in limited_by(seen, "stragglers"):
        if seen.slow_ranks(sync.cell):
            continue  # that says more
        assert sync.waiting is not None
        late = late_rank(sync.cell, seen.raw(sync.cell))
        apart = _distinguishable(sync.cell)
        who = f"rank {late.rank}" if late else "ranks that come late in turn" if apart else "a rank that is not known"
        yield on_sync(
            sync,
            Diagnosis(
                code="straggler-bound",
                how=f"and {share(sync.waiting)} of its communication is waiting, for {who}",
                cause=_cause(late) if apart else _CLOCKS,
                next_step=_next_step(seen, sync, late),
                command=focused(seen.settings, sync.cell, profile=True)
                if traces.can_be_traced(seen, sync.cell)
                else None,
                evidence=tuple(_evidence(sync, late)),
                saved=WAITED,
                step=STEP_MOST,
                basis="Step ÷ (step − waiting of the rank that waits longest); assumes ranks that issue each message "
                "at the same time.",
            ),
        )


def _next_step(seen: Seen, sync: GradientSync, late: Late | None) -> str:
    if traces.can_be_traced(seen, sync.cell):
        return "Trace all ranks: the advice then says which operators the late one runs longer than the others."
    waiting = per_step(sync.blocks, pl.col("wait_most_s"))
    if late is None or waiting is None:
        return "Look at what else runs on these hosts while they train."
    read = traces.on_slow_ranks(sync.cell, (late.rank,), waiting.value)
    if not read and late.rank in traces.read(sync.cell):
        read = " In the traces no operator takes longer there than on the others."
    return f"Look at what rank {late.rank} does, and what else its host does, while the others wait.{read}"


def late_rank(cell: CellAnalysis, raw: Cell) -> Late | None:
    """The rank that issues last where it matters; None where no rank is waited for more than any other (§3).

    A message is waited for by each rank from its own issue to that of the last one, and the last one is to blame, where
    the clocks tell it from all others.
    """
    if not _distinguishable(cell):
        return None
    assert cell.communication is not None
    blamed, waited = cell.communication.messages, pl.col("waited_ns")
    rank = (
        blamed.filter(pl.col("last_rank") >= 0)
        .group_by("last_rank")
        .agg(waited.sum())
        .sort("waited_ns", "last_rank")["last_rank"]
        .last()
    )
    assert isinstance(rank, int)
    own = waited.filter(pl.col("last_rank") == rank).sum()
    blocks = blamed.group_by(*BLOCK).agg(own.alias("own_ns"), waited.sum().alias("all_ns"))
    share = ratio_over(blocks, pl.col("own_ns"), pl.col("all_ns"))
    if not notable(share, 1 / ranks_of(cell)):
        return None
    return Late(rank, share, *_against_others(rank_means(raw), rank))


def _distinguishable(cell: CellAnalysis) -> bool:
    """Whether the clocks tell of any message which rank was the last one."""
    assert cell.communication is not None
    return bool((cell.communication.messages["last_rank"] >= 0).any())


def _against_others(means: pl.DataFrame, rank: int) -> tuple[Estimate | None, Estimate | None]:
    own = pl.col("rank") == rank
    columns = {"computing": COMPUTE, "data": pl.col("data_wait_s"), "step": pl.col("step_s")}
    blocks = means.group_by(*BLOCK).agg(
        *(value.filter(own).mean().alias(name) for name, value in columns.items()),
        *(value.filter(~own).mean().alias(f"other_{name}") for name, value in columns.items()),
    )
    return (
        ratio_over(blocks, pl.col("computing"), pl.col("other_computing")),
        ratio_over(blocks, pl.col("data") - pl.col("other_data"), pl.col("step")),
    )


def _cause(late: Late | None) -> str:
    if late is None:
        return "No rank is late more than the others: something delays them in turn, such as other work on their cores."
    if late.data_wait is not None and notable(late.data_wait):
        return f"Rank {late.rank} waits longer for its data than the others."
    if late.computing is not None and notable(late.computing, 1):
        return (
            f"Rank {late.rank} computes {estimate_text(late.computing)} times as long as the others: it does more, or "
            "its cores are slower or busier."
        )
    return f"Rank {late.rank} computes no longer than the others: it is held up between computing and its messages."


def _by_rank(cell: CellAnalysis) -> Iterator[Evidence]:
    """The waits of the ranks that wait most and least, where they differ."""
    assert cell.communication is not None
    for each in cell.communication.extremes or ():
        yield time_of(f"Wait per step of rank {each.rank}", each.wait_s)


def _evidence(sync: GradientSync, late: Late | None) -> Iterator[Evidence]:
    wait = per_step(sync.blocks, pl.col("wait_s"))
    transfer = per_step(sync.blocks, pl.col("transfer_s"))
    if wait is not None and transfer is not None:
        yield time_of("Wait per step, mean over ranks", wait)
        yield from _by_rank(sync.cell)
        longest = per_step(sync.blocks, pl.col("wait_most_s"))
        if longest is not None:
            yield time_of("Wait per step of the rank that waits longest", longest)
        yield time_of("Transfer per step", transfer)
    if late is not None:
        yield share_of(f"Of the waiting, for rank {late.rank}", late.share)
