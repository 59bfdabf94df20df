"""Ranks that the others wait for."""

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.advice.commands import focused
from worldsize.analysis.advice.communication import Diagnosis, limited_by, on_sync
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, ms, ratio_of_two, share, share_of, time_of
from worldsize.analysis.advice.gains import STEP_MOST, notable
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.advice.peers import SlowRanks
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.steps import BLOCK, COMPUTE, per_step, rank_means, ratio_over
from worldsize.results.folder import Cell
from worldsize.results.records import Estimate

WAITED = pl.min_horizontal(pl.col("exposed_most_s"), pl.col("wait_most_s"))
"""What of the exposed communication can be waiting at most, on the rank that waits longest."""

WORDS = {
    "data_wait_s": "data wait",
    "copy_s": "copies",
    "forward_s": "forward",
    "backward_s": "backward",
    "optimizer_s": "optimizer",
    "other_s": "the rest of the step",
}
SLOWER_CORES = 1.1
"""Ratio of the short computation from which on cores are said to be slower; equal ones differ by a few percent."""

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


def slow_rank(seen: Seen) -> Iterator[Candidate]:
    """Ranks that surely work longer than their peers."""
    for cell in seen.several:
        found = seen.slow_ranks(cell)
        if found is None:
            continue
        who, part, one = named(found.ranks), WORDS[found.part], ranks_of(cell) == 2
        others = "the other one" if one else "the others"
        place = place_of(cell, found.ranks[0])
        at = f" ({place})" if place else ""
        yield candidate(
            "slow-rank",
            cell,
            finding=f"{who}{at} of {cell_name(cell)} {_works(found)} {ms(found.more)} longer per step than {others}, "
            f"{ms(found.part_more)} of it in {part}, and {others} {'waits' if one else 'wait'}.",
            evidence=(
                time_of(f"{part.capitalize()} per step, {who.lower()}", found.own),
                time_of(f"{part.capitalize()} per step, {others}", found.others),
                *_cores(found),
            ),
            cause=_why(found),
            next_step=_next_step(cell, found),
            command=None,
            gain=at_most(
                found.gain,
                f"Step ÷ (step − what {who.lower()} works longer); assumes ranks that all work as long as {others}.",
            ),
            leads=found.explains,
        )


def named(ranks: tuple[int, ...]) -> str:
    """`Rank 1`, `Ranks 2 and 3`, `Ranks 4, 5, 6 and 7`."""
    *most, last = map(str, ranks)
    return f"Ranks {', '.join(most)} and {last}" if most else f"Rank {last}"


def _works(found: SlowRanks) -> str:
    return "works" if len(found.ranks) == 1 else "work"


def place_of(cell: CellAnalysis, rank: int) -> str:
    """`host, cores 2 and 3`; empty where it is not known."""
    places = cell.record.ranks if cell.record else []
    if rank >= len(places):
        return ""
    cores = sorted(places[rank].cores)
    if not cores:
        return places[rank].host
    if len(cores) == 1:
        return f"{places[rank].host}, core {cores[0]}"
    listed = f"{cores[0]} to {cores[-1]}" if cores[-1] - cores[0] == len(cores) - 1 else ", ".join(map(str, cores))
    return f"{places[rank].host}, cores {listed}"


def _cores(found: SlowRanks) -> Iterator[Evidence]:
    if found.cores is not None:
        yield ratio_of_two("A short computation beside the steps, there ÷ on the others", found.cores)


def _cores_are_slower(found: SlowRanks) -> bool | None:
    """None where that was not measured, or is not sure."""
    cores = found.cores
    if cores is None or cores.low is None or cores.high is None:
        return None
    if cores.low > 1 and cores.value > SLOWER_CORES:
        return True
    return False if cores.value <= SLOWER_CORES else None


def _why(found: SlowRanks) -> str:
    if found.part == "data_wait_s":
        return "Its batches come later than those of the others: its storage, its loader, or what its samples are."
    slower = _cores_are_slower(found)
    if slower is None:
        return "Whether its cores are slower, or it does more, was not measured."
    assert found.cores is not None
    ratio = estimate_text(found.cores)
    if slower:
        return (
            f"Its cores are slower or busier: a short computation that is the same everywhere takes {ratio} times as "
            "long there."
        )
    return f"It does more: a short computation that is the same everywhere takes {ratio} times as long there."


def _next_step(cell: CellAnalysis, found: SlowRanks) -> str:
    rank = found.ranks[0]
    place = place_of(cell, rank)
    at = f" ({place})" if place else ""
    if found.part == "data_wait_s":
        return f"Look at where rank {rank}{at} reads its data from, and how long it takes to make a batch there."
    if _cores_are_slower(found):
        return f"Look at what else runs there{at}, and at the clock of these cores; or give rank {rank} other cores."
    return f"Look at what rank {rank}{at} alone does in its {_short(found.part)}: a branch on the rank, longer samples."


def _short(part: str) -> str:
    return "loop" if part == "other_s" else WORDS[part]


def straggler_bound(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that is mostly waiting for a rank that comes late."""
    for sync in limited_by(seen, "stragglers"):
        if seen.slow_ranks(sync.cell):
            continue  # that says more
        assert sync.waiting is not None
        late = late_rank(sync.cell, seen.raw(sync.cell))
        told = _told_apart(sync.cell)
        who = f"rank {late.rank}" if late else "ranks that come late in turn" if told else "a rank that is not known"
        yield on_sync(
            sync,
            Diagnosis(
                code="straggler-bound",
                how=f"and {share(sync.waiting)} of its communication is waiting, for {who}",
                cause=_cause(late) if told else _CLOCKS,
                next_step="Look at a trace of all ranks: what does the late one do while the others wait?",
                command=focused(seen.settings, sync.cell, profile=True),
                evidence=tuple(_evidence(sync, late)),
                saved=WAITED,
                step=STEP_MOST,
                basis="Step ÷ (step − waiting of the rank that waits longest); assumes ranks that issue each message "
                "at the same time.",
            ),
        )


def late_rank(cell: CellAnalysis, raw: Cell) -> Late | None:
    """The rank that issues last where it matters; None where no rank is waited for more than any other (§3).

    A message is waited for by each rank from its own issue to that of the last one, and the last one is to blame, where
    the clocks tell it from all others.
    """
    if not _told_apart(cell):
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


def _told_apart(cell: CellAnalysis) -> bool:
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
            f"Rank {late.rank} computes {estimate_text(late.computing)} times as long as the others: its cores are "
            "slower or busier."
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
