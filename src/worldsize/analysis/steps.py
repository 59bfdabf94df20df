"""The timed steps of a cell, all ranks of each together, and block by block; and whether all are still there.

Most of the analysis begins with them (method.md §2, §8); intervals of shares and of times are made of blocks.
What was lost must not change a number unseen.
"""

from collections.abc import Mapping, Sequence

import polars as pl

from worldsize.analysis.once import once_per_cell
from worldsize.analysis.parts import with_parts
from worldsize.analysis.statistics import mean_estimate
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.records import PARTS, CellRecord, CellSummary, Estimate
from worldsize.results.samples import SPANS
from worldsize.results.samples import STEPS as STEPS_KIND
from worldsize.results.step_records import MAX_DRIFT, OF_SOME_RANKS
from worldsize.traits import traits_of

COLUMNS = ("step_s", *PARTS, "comm_s", "overlapped_s")
COMPUTE = pl.col("forward_s") + pl.col("backward_s") + pl.col("optimizer_s")
MAX = {
    "step_most_s": pl.col("step_s"),
    "data_wait_most_s": pl.col("data_wait_s"),
    "copy_most_s": pl.col("copy_s"),
    "compute_most_s": COMPUTE,
    "other_most_s": pl.col("other_s"),
    "exposed_most_s": pl.col("exposed_sync_s"),
}
"""Of each step that of the rank which has most of it: a mean over ranks hides what the others wait for."""

BLOCK = ("session", "block")
STEPS = pl.col("steps")
"""Timed steps of a block: blocks by time have more or fewer, and the tables are over steps."""
AGAIN = "Remove its folder, and --resume measures it again."
BROUGHT = "Each rank has files of its own, from its first step on: copy those of all hosts into this folder."
ALIGNED_NS = 10**12
"""Clocks that may be off by as much were never aligned, and say nothing of another rank's."""
SLACK_NS = 10**9
"""By so much two ranks may seem to be out of turn without being called so; a turn takes seconds."""
LATE_NS = 60 * 10**9
"""A rank that begins later than this after another one's end has not worked with it, however late it may be."""


@once_per_cell
def timed_steps(cell: Cell) -> pl.DataFrame:
    """One row per timed step, in the order of time: session, block, step, launch, world_s, means of COLUMNS, and MAX.

    `world_s` is the time (s) from the end of the step before on its last rank to the end of this one on its own last
    rank, on aligned clocks. So a rank that is late once counts once, and nothing between two steps is left out; the
    first step of a turn or of a launch, which has none before it, and one after the computation that tells of
    disturbances begin when the last rank has begun (method.md §8). Means are over ranks. A step that not every process
    has written, because the run was cut short or its line is damaged, is left out: its slowest rank is unknown.
    """
    trained = with_parts(cell).filter("synchronised")
    most = (value.max().alias(name) for name, value in MAX.items())
    # One offset for a turn: another one at its end would be taken for time that its last step took.
    offset_ns = pl.col("clock_offset_ns").first().over("rank", "session", "block", "launch")
    begin_ns = pl.col("start_ns") + pl.col("offset_ns")
    steps = (
        trained.with_columns(offset_ns.alias("offset_ns"))
        .group_by("session", "block", "step")
        .agg(
            pl.col(*COLUMNS).mean(),
            *most,
            pl.col("launch").first().fill_null(0),
            pl.len().alias("ranks"),
            pl.col("timed").all(),
            pl.col("reference_s").is_not_null().any().alias("paused"),
            begin_ns.max().alias("begin_ns"),
            (begin_ns + (1e9 * pl.col("step_s")).round().cast(pl.Int64)).max().alias("end_ns"),
        )
    )
    seen = pl.col("rank").n_unique()  # of a metered process that drives all workers by itself
    processes = processes_of(cell.record) or cell.collect(trained.select(seen)).item()
    found = cell.collect(steps.filter(pl.col("ranks") == processes).sort("session", "step"))
    # Workers that were started again within an epoch go on in its block: what was lost is no part of a step.
    turn = ("session", "block", "launch")
    follows = pl.col("step") == pl.col("step").shift(1).over(turn) + 1
    found = found.with_columns(pl.col("end_ns", "paused").shift(1).over(turn).name.prefix("before_"))
    since_ns = pl.when(follows & ~pl.col("before_paused")).then("before_end_ns").otherwise("begin_ns")
    world_s = (pl.col("end_ns") - since_ns) / 1e9
    # Where a clock was set back, what the slowest rank itself measured has to do.
    found = found.with_columns(pl.when(world_s > 0).then(world_s).otherwise("step_most_s").alias("world_s"))
    found = found.filter("timed")
    return found.drop("ranks", "timed", "begin_ns", "end_ns", "paused", "before_end_ns", "before_paused")


def world_steps(cell: Cell) -> pl.DataFrame:
    """The timed steps of a cell, each ended by its slowest rank: session, block, step and step_s (seconds)."""
    return timed_steps(cell).select("session", "block", "step", pl.col("world_s").alias("step_s"))


def steps_of_ranks(cell: Cell, *columns: str) -> pl.LazyFrame:
    """Some columns of the same steps, one row for each rank, in the order of `Cell.steps`."""
    names = list(dict.fromkeys(("session", "step", *columns)))
    # In another order sums would differ in their last digits from one report to the next.
    counting = timed_steps(cell).select("session", "step").lazy()
    whole = with_parts(cell).select(names).join(counting, on=["session", "step"], how="semi", maintain_order="left")
    return whole.select(names)


def block_means(cell: Cell) -> pl.DataFrame:
    """One row per session and block, in order: `steps`, and means of COLUMNS (s) over ranks and these (method.md §2).

    And means of MAX (s) over timed steps. The same steps count as in the cell's summary: those that every process
    has written, so the mean of their means over ranks is the mean over all.
    """
    steps = timed_steps(cell).group_by(*BLOCK, maintain_order=True)
    return steps.agg(pl.col(*COLUMNS, *MAX).mean(), pl.len().alias("steps")).sort(*BLOCK)


def rank_means(cell: Cell) -> pl.DataFrame:
    """The same for each rank by itself, in the order of session, block and rank."""
    steps = steps_of_ranks(cell, *BLOCK, "rank", *COLUMNS)
    return cell.collect(steps.group_by(*BLOCK, "rank").agg(pl.col(*COLUMNS).mean()).sort(*BLOCK, "rank"))


def mean_over(blocks: pl.DataFrame, value: pl.Expr) -> Estimate | None:
    """Mean of a value over blocks, with its interval; None where no block has it."""
    values = blocks.select(value.cast(pl.Float64).alias("value"))["value"].drop_nulls().drop_nans()
    return mean_estimate(values.to_numpy()) if values.len() else None


def ratio_over(blocks: pl.DataFrame, top: pl.Expr, bottom: pl.Expr) -> Estimate | None:
    """Sum of one value ÷ sum of another over blocks, with its interval; None where no block has both.

    The ratio of totals, as the tables have it, never the mean of ratios; its interval is that of the blocks'
    deviations from it (the ratio estimator: Cochran, Sampling Techniques, 1977, §6.3).
    """
    both = blocks.select(top.cast(pl.Float64).alias("top"), bottom.cast(pl.Float64).alias("bottom")).drop_nulls()
    above, below = both["top"].to_numpy(), both["bottom"].to_numpy()
    if not below.sum():
        return None
    ratio = above.sum() / below.sum()
    return mean_estimate(ratio + (above - ratio * below) / below.mean())


def per_step(blocks: pl.DataFrame, value: pl.Expr) -> Estimate | None:
    """Mean over steps of what is a mean of each block, as the tables have it; None where no block has it."""
    return ratio_over(blocks, value * STEPS, STEPS)


def processes_of(record: CellRecord) -> int | None:
    """How many processes a cell has, each with files of its own; None where one may drive several workers unseen.

    A run that was only metered has no placement: N processes send each other something, and of one that sends nothing
    to others it is not known.
    """
    if record.placement is not None:
        return record.placement.processes
    return record.world_size if traits_of(record.strategy, record.own_traits).collectives else None


def check_samples(cell: Cell) -> None:
    """Raise OutputError where samples of a cell cannot be read, or some that it had are gone.

    Steps that are there and hold what cannot be are left out with a warning (results/samples.py): those are not lost.
    """
    counts = dict(cell.collect(cell.scan_steps().group_by("rank").agg(pl.col("timed").sum())).iter_rows())
    # After the steps: of a run that goes on, each step that was read has its messages by then.
    cell.collect(cell.scan_spans().select(pl.len()))
    record = cell.record
    if record.state == "failed":
        return
    ranks = range(processes_of(record) or max(1, len(counts)))
    if record.summary is not None or record.placement is None or (record.state == "complete" and counts):
        _check_ranks(cell, ranks, counts)
    if record.summary is not None and record.placement is not None:
        _check_steps(cell, record.summary, ranks, counts)
    if len(ranks) > 1:
        _check_times(cell)
    _check_messages(cell, ranks)


def _again(cell: Cell) -> str:
    """What to do about samples that are gone: a loop of the user's own is not run by --resume."""
    return AGAIN if cell.record.settings is not None else BROUGHT


def _check_ranks(cell: Cell, ranks: Sequence[int], counts: Mapping[int, int]) -> None:
    there = {*counts, *cell.damaged[STEPS_KIND.name]}
    if cell.record.state == "running":  # some may not have written their first step
        there |= STEPS_KIND.files(cell.folder).keys()
    missing = [rank for rank in ranks if rank not in there]
    if missing:
        more = f" and {len(missing) - 1} more ranks" if len(missing) > 1 else ""
        raise OutputError(f"no sample of rank {missing[0]}{more} is left in {cell.folder}\n{_again(cell)}")


def _check_steps(cell: Cell, summary: CellSummary, ranks: Sequence[int], counts: Mapping[int, int]) -> None:
    # Which steps are disturbed is found anew: without those that are lost it may be others.
    wanted = summary.timed_steps + summary.disturbed_steps
    found = timed_steps(cell).height + cell.left_out.height
    if found + sum(cell.damaged[STEPS_KIND.name].values()) < wanted:
        shortest = min(ranks, key=lambda rank: counts.get(rank, 0))
        raise OutputError(
            f"{wanted - found} of its {wanted} timed steps are gone from {cell.folder}: "
            f"rank {shortest} has {counts.get(shortest, 0)}\n{_again(cell)}"
        )


def _check_times(cell: Cell) -> None:
    """Ranks of one run are there at one time, by clocks that were aligned: else the files of one are of another run.

    In a run of ours all ranks end a turn before any of them begins the next one, however late one of them may be.
    Steps of warming up say nothing of that: each launch has them in block 0.
    """
    begin_ns = pl.col("start_ns") + pl.col("clock_offset_ns")
    length_ns = (1e9 * pl.col("step_s")).round().cast(pl.Int64)
    aligned = pl.col("clock_error_ns") < ALIGNED_NS
    counting = pl.col("timed") | cell.record.of_epochs
    turns = cell.collect(
        cell.scan_steps()
        .filter(aligned, counting)
        .group_by("session", "launch", "block", "rank")
        .agg(
            begin_ns.min().alias("begin_ns"),
            (begin_ns + length_ns).max().alias("end_ns"),
            pl.col("clock_error_ns").max().alias("error_ns"),
        )
    ).sort("session", "launch", "rank", "block")
    following = pl.col("block", "begin_ns").shift(-1).over("session", "launch", "rank").name.prefix("next_")
    # A rank whose own clock was set back says nothing of the others.
    in_order = turns.with_columns(following).filter(pl.col("next_begin_ns") >= pl.col("end_ns"))
    if cell.record.placement is not None:
        turn = ("session", "launch", "block", "next_block")
        _refuse_apart(cell, in_order, turn, ("end_ns", "next_begin_ns"), SLACK_NS)
    whole = turns.group_by("session", "rank").agg(pl.col("begin_ns").min(), pl.col("end_ns", "error_ns").max())
    _refuse_apart(cell, whole, ("session",), ("begin_ns", "end_ns"), LATE_NS)


def _refuse_apart(cell: Cell, times: pl.DataFrame, by: Sequence[str], order: tuple[str, str], slack_ns: int) -> None:
    """Raise OutputError where the first of two moments comes on one rank later than the second one on another."""
    first, second = (pl.col(name) for name in order)
    # Clocks drift between two alignments.
    doubt_ns = 2 * pl.col("error_ns").max() + MAX_DRIFT * (pl.col("end_ns") - pl.col("begin_ns")).max()
    found = times.group_by(by).agg(
        pl.col("rank").sort_by(first).last().alias("late"),
        pl.col("rank").sort_by(second).first().alias("early"),
        (first.max() - second.min() - doubt_ns).alias("apart_ns"),
    )
    apart = found.filter(pl.col("apart_ns") > slack_ns).sort(by)
    if apart.height:
        early, late = apart.select("early", "late").row(0)
        raise OutputError(
            f"rank {early} and rank {late} were not at work at one time: samples of one of them in {cell.folder} are "
            f"of another run\n{_again(cell)}"
        )


def _check_messages(cell: Cell, ranks: Sequence[int]) -> None:
    """Of each step that all ranks have ended, all that record messages have theirs, or none has any.

    A line holds the messages of a step of a rank, so they are there together or not at all. A rank that was killed
    wrote those of a step before the step itself.
    """
    step = ("session", "step")
    written = cell.scan_steps().group_by(*step).agg(pl.col("rank").n_unique().alias("ranks"))
    ended = written.filter(pl.col("ranks") == len(ranks)).select(step)
    of_all = pl.col("kind").list.eval(~pl.element().str.ends_with(OF_SOME_RANKS)).list.any()
    spans = cell.scan_spans().select("rank", *step, of_all.alias("of_all"))
    any_sent = cell.collect(spans.join(ended, on=step, how="semi").unique())
    sent = any_sent.filter("of_all")  # those of some ranks others need not have
    counts, summary = dict(sent.group_by("rank").len().iter_rows()), cell.record.summary
    wanted = sent.select(step).n_unique() if counts else 0
    if any_sent.is_empty() and summary is not None and summary.comm_s and _has_marks(cell):  # it had some
        counts, wanted = dict.fromkeys(ranks, 0), summary.timed_steps
    gone = {rank: wanted - counts.get(rank, 0) for rank in _recording(cell, ranks, counts)}
    if sum(gone.values()) > sum(cell.damaged[SPANS.name].values()):
        most = max(gone, key=lambda rank: gone[rank])
        raise OutputError(
            f"the messages of {gone[most]:,} of {wanted:,} steps of rank {most} are gone from {cell.folder}\n"
            f"{_again(cell)}"
        )


def _has_marks(cell: Cell) -> bool:
    """Whether its parts are made of marks and messages; lines of schema 1 hold them from when they were recorded."""
    return bool(cell.collect(cell.scan_steps().select(pl.col("comm_s").is_null().any())).item())


def _recording(cell: Cell, ranks: Sequence[int], counts: Mapping[int, int]) -> list[int]:
    """The ranks that record messages: under a strategy of worldsize's own all of them.

    Elsewhere a rank may never send anything that is seen; it has a file for it all the same, which is empty.
    """
    record = cell.record
    if record.settings is not None and record.settings.program is None and record.own_traits is None:
        return list(ranks)
    without_file = STEPS_KIND.files(cell.folder).keys() - SPANS.files(cell.folder).keys()
    return [rank for rank in ranks if rank in counts or rank in without_file]
