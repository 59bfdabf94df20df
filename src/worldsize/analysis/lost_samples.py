"""Whether all samples of a cell are there, and of one run: what was lost must not change a number unseen."""

from collections.abc import Mapping, Sequence

import polars as pl

from worldsize.analysis.steps import processes_of, timed_steps
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.records import CellSummary
from worldsize.results.samples import SPANS, STEPS
from worldsize.results.step_records import MAX_DRIFT, NOT_ALIGNED_NS, OF_SOME_RANKS

AGAIN = "Remove its folder, and --resume measures it again."
BROUGHT = "Each rank has files of its own, from its first step on: copy those of all hosts into this folder."
SLACK_NS = 10**9
"""Ranks that are out of turn by less are not called so: a turn takes seconds."""
LATE_NS = 60 * 10**9
"""A rank that begins so long after another one has ended has not worked with it, however late it may be."""


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
    there = {*counts, *cell.damaged[STEPS.name]}
    if cell.record.state == "running":  # some may not have written their first step
        there |= STEPS.files(cell.folder).keys()
    missing = [rank for rank in ranks if rank not in there]
    if missing:
        more = f" and {len(missing) - 1} more ranks" if len(missing) > 1 else ""
        raise OutputError(f"no sample of rank {missing[0]}{more} is left in {cell.folder}\n{_again(cell)}")


def _check_steps(cell: Cell, summary: CellSummary, ranks: Sequence[int], counts: Mapping[int, int]) -> None:
    wanted, found = summary.timed_steps, timed_steps(cell).height
    if found + sum(cell.damaged[STEPS.name].values()) < wanted:
        shortest = min(ranks, key=lambda rank: counts.get(rank, 0))
        raise OutputError(
            f"{wanted - found} of its {wanted} timed steps are gone from {cell.folder}, or there more than once: "
            f"rank {shortest} has {counts.get(shortest, 0)}, another {max(counts.values(), default=0)}\n{_again(cell)}"
        )


def _check_times(cell: Cell) -> None:
    """Ranks of one run are there at one time, by clocks that were aligned: else the files of one are of another run.

    In a run of ours all ranks end a turn before any of them begins the next one, however late one of them may be.
    Steps of warming up say nothing of that: each launch has them in block 0.
    """
    begin_ns = pl.col("start_ns") + pl.col("clock_offset_ns")
    length_ns = (1e9 * pl.col("step_s")).round().cast(pl.Int64)
    aligned = pl.col("clock_error_ns") < NOT_ALIGNED_NS  # else they say nothing of another rank
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
        _refuse_apart(cell, in_order, turn, "end_ns", "next_begin_ns", SLACK_NS)
    whole = turns.group_by("session", "rank").agg(pl.col("begin_ns").min(), pl.col("end_ns", "error_ns").max())
    _refuse_apart(cell, whole, ("session",), "begin_ns", "end_ns", LATE_NS)


def _refuse_apart(
    cell: Cell, times: pl.DataFrame, by: Sequence[str], first_ns: str, then_ns: str, slack_ns: int
) -> None:
    """Raise OutputError where the first moment on one rank is later than the next on another, beyond all doubt."""
    first, then = pl.col(first_ns), pl.col(then_ns)
    # Clocks drift between two alignments.
    doubt_ns = 2 * pl.col("error_ns").max() + MAX_DRIFT * (pl.col("end_ns") - pl.col("begin_ns")).max()
    found = times.group_by(by).agg(
        pl.col("rank").sort_by(first).last().alias("late"),
        pl.col("rank").sort_by(then).first().alias("early"),
        (first.max() - then.min() - doubt_ns).alias("apart_ns"),
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
    without_file = STEPS.files(cell.folder).keys() - SPANS.files(cell.folder).keys()
    return [rank for rank in ranks if rank in counts or rank in without_file]
