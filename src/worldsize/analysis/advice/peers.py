"""Ranks of a cell that work longer than their peers: which, in what part of the step, and how fast their cores are."""

from dataclasses import dataclass
from statistics import fmean

import polars as pl

from worldsize.analysis.activity import Spent, spent, thread_times
from worldsize.analysis.advice.gains import MOSTLY, NOTABLE, STEP_MOST, notable, without
from worldsize.analysis.steps import BLOCK, per_step, rank_means, ratio_over
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, Estimate

OWN = tuple(name for name in PARTS if name != "exposed_sync_s")
"""Parts of a step in which a rank waits for no other one."""
STEEP = 0.75
"""Share of what slow and other ranks differ by that lies between the nearest of both; of ranks that differ gradually it
is half at most."""


@dataclass(frozen=True)
class SlowRanks:
    """The ranks of a cell that significantly work longer than the others."""

    ranks: tuple[int, ...]
    more: Estimate
    """Seconds per step that they work longer than the mean of the others."""
    part: str
    """The part of the step that has most of it: a name of PARTS."""
    part_more: Estimate
    own: Estimate
    """Seconds per step of this part, on these ranks."""
    others: Estimate
    gain: Estimate
    """Step ÷ step without what they work longer."""
    explains: bool
    """Whether it is most of what the step takes longer than the other ranks work."""
    cores: Estimate | None
    """How long the short computation beside the steps takes there ÷ on the others (method.md §8)."""
    spent: Spent | None
    """What most of it is used for; None where that was not seen."""
    blocks_of_others: pl.DataFrame
    """The means of the cell by block, with the parts of the other ranks in place of those of all."""

    @property
    def alone_in(self) -> str:
        """The part that is notable on these ranks only; empty where the others have a notable one, too."""
        share = ratio_over(self.blocks_of_others, pl.col(self.part), STEP_MOST)
        return "" if share is None or share.value >= NOTABLE else self.part


def slow_ranks(cell: Cell, cell_blocks: pl.DataFrame) -> SlowRanks | None:
    """The slow ranks of a cell with these means by block; None where none significantly works 5 % of it longer.

    A rank works in all parts of its step but exposed communication, in which it waits for others.
    """
    means = rank_means(cell)
    if means["rank"].n_unique() < 2 or means["exposed_sync_s"].has_nulls():
        return None
    means = means.with_columns(pl.sum_horizontal(*OWN).alias("work_s"))
    slow = _above_the_gap(means)
    if not slow:
        return None
    side = _side_by_side(means, slow)
    blocks = side.join(cell_blocks.select(*BLOCK, "steps", "step_most_s"), on=BLOCK)
    more = pl.col("work_s") - pl.col("other_work_s")
    gain, seconds = without(blocks, more, STEP_MOST), per_step(blocks, more)
    if gain is None or seconds is None or not notable(ratio_over(blocks, more, STEP_MOST)):
        return None
    excess = {part: per_step(blocks, pl.col(part) - pl.col(f"other_{part}")) for part in OWN}
    part, part_more = max(((name, found) for name, found in excess.items() if found), key=lambda each: each[1].value)
    own, others = per_step(blocks, pl.col(part)), per_step(blocks, pl.col(f"other_{part}"))
    lost = ratio_over(blocks, more, STEP_MOST - pl.col("other_work_s"))
    assert own is not None
    assert others is not None
    of_others = side.select(*BLOCK, *(pl.col(f"other_{name}").alias(name) for name in OWN))
    return SlowRanks(
        ranks=slow,
        more=seconds,
        part=part,
        part_more=part_more,
        own=own,
        others=others,
        gain=gain,
        explains=lost is not None and lost.value > MOSTLY,
        cores=_of_cores(cell, slow),
        spent=_spent(cell, slow, blocks.select(*BLOCK, more.alias("more_s"))),
        blocks_of_others=cell_blocks.drop(OWN).join(of_others, on=BLOCK),
    )


def _above_the_gap(means: pl.DataFrame) -> tuple[int, ...]:
    """The ranks above the largest gap between neighbours in the order of their work.

    None where they are the most, or where the gap is little of what both sides differ by: then ranks differ gradually.
    """
    order = means.group_by("rank").agg(pl.col("work_s").mean()).sort("work_s", "rank")
    work_s = order["work_s"].to_list()
    at = max(range(1, len(work_s)), key=lambda index: work_s[index] - work_s[index - 1])
    apart_s = fmean(work_s[at:]) - fmean(work_s[:at])
    if 2 * at < len(work_s) or work_s[at] - work_s[at - 1] < STEEP * apart_s:
        return ()
    return tuple(sorted(order["rank"][at:].to_list()))


def _side_by_side(means: pl.DataFrame, slow: tuple[int, ...]) -> pl.DataFrame:
    """For each block what the slow ranks do, and the others (`other_…`), in the mean."""
    among = pl.col("rank").is_in(slow)
    names = (*OWN, "work_s")
    return means.group_by(*BLOCK, maintain_order=True).agg(
        pl.col(*names).filter(among).mean(), pl.col(*names).filter(~among).mean().name.prefix("other_")
    )


def _spent(cell: Cell, slow: tuple[int, ...], more: pl.DataFrame) -> Spent | None:
    times = thread_times(cell)
    if times is None:
        return None
    among = pl.col("rank").is_in(slow)
    return spent(times.filter(among), times.filter(~among), more)


def _of_cores(cell: Cell, slow: tuple[int, ...]) -> Estimate | None:
    """The short computation on the slow ranks ÷ on the others, block by block."""
    among = pl.col("rank").is_in(slow)
    times = cell.step_columns(*BLOCK, "rank", "reference_s").drop_nulls("reference_s")
    blocks = times.group_by(*BLOCK, maintain_order=True).agg(
        pl.col("reference_s").filter(among).median().alias("own"),
        pl.col("reference_s").filter(~among).median().alias("other"),
    )
    return ratio_over(blocks, pl.col("own"), pl.col("other"))
