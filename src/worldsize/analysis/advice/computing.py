"""Computing that takes longer with several workers than with one: why, where that was seen."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.activity import USES, Spent, spent, thread_times
from worldsize.analysis.advice import traces
from worldsize.analysis.advice.finding import PART_WORDS, at_most, cell_name, several, time_of
from worldsize.analysis.advice.gains import COMPUTE_MOST, NOTABLE, STEP_MOST, more_than, notable, ratio_of
from worldsize.analysis.advice.peers import SlowRanks
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused
from worldsize.analysis.numbers import ABSENT, estimate_text
from worldsize.analysis.scaling import find_baseline
from worldsize.analysis.steps import BLOCK, COMPUTE
from worldsize.traits import OVERLAPPING

WAITING = ", where they wait and do not compute"


def compute_slower(seen: Seen) -> Iterator[Candidate]:
    """Computing that takes longer than it takes one worker with the same local batch."""
    if seen.settings.sweep:
        return
    for cell in seen.several:
        origin = seen.find(cell.strategy, 1, cell.batch_size) or find_baseline("weak", cell, seen.cells)
        if origin is None or cell.threads_per_worker != origin.threads_per_worker:
            continue
        slow = seen.slow_ranks(cell)  # which are a finding of their own
        of_all = more_than(slow.blocks_of_others if slow else seen.blocks(cell), seen.blocks(origin), COMPUTE)
        found = more_than(seen.blocks(cell), seen.blocks(origin), COMPUTE_MOST, STEP_MOST)
        # Of many ranks the slowest of each step is slower by chance: what all share shows in the mean.
        if of_all is None or found is None or not notable(of_all[1], 1 + NOTABLE):
            continue
        more, gain = found
        whose = " the slowest rank of" if ranks_of(cell) > 1 else ""
        longer = ratio_of(seen.blocks(cell), seen.blocks(origin), COMPUTE_MOST)
        used = _used(seen, cell, origin, slow)
        next_step, command = _remedy(seen, cell, origin, used)
        yield candidate(
            "compute-slower",
            cell,
            finding=f"Forward, backward and optimizer of{whose} {cell_name(cell)} take "
            f"{estimate_text(longer) if longer else ABSENT} times as long as those of {origin.id}, most of it in "
            f"{_where(seen, cell, origin)}{WAITING if used and used.use == 'idle' else ''}.",
            evidence=[
                time_of(f"Computing per step, more than {origin.id}", more),
                *([time_of(USES[used.use], used.seconds)] if used else []),
            ],
            cause=_why_slower(used) + traces.beside(cell, origin, of_all[0].value, slow.ranks if slow else ()),
            next_step=next_step,
            command=command,
            gain=at_most(
                gain,
                f"Step ÷ (step − what computing takes more than in {origin.id}"
                f"{', on the slowest rank' if whose else ''}); assumes workers that do not touch each other.",
            ),
        )


def _where(seen: Seen, cell: CellAnalysis, origin: CellAnalysis) -> str:
    """The part of computing that takes most of it longer, on the mean of the ranks."""
    more = {
        name: found[0].value if (found := more_than(seen.blocks(cell), seen.blocks(origin), pl.col(name))) else 0.0
        for name in COMPUTE_PARTS
    }
    return PART_WORDS[max(more, key=lambda name: more[name])]


def _used(seen: Seen, cell: CellAnalysis, origin: CellAnalysis, slow: SlowRanks | None) -> Spent | None:
    """What the threads of all but slow ranks do while they compute longer than one worker; None where not seen."""
    own, alone = thread_times(seen.raw(cell)), thread_times(seen.raw(origin))
    if own is None or alone is None:
        return None
    computing = slow.blocks_of_others if slow else seen.blocks(cell)
    both = computing.select(*BLOCK, COMPUTE.alias("own")).join(
        seen.blocks(origin).select(*BLOCK, COMPUTE.alias("alone")), on=BLOCK
    )
    more = both.select(*BLOCK, (pl.col("own") - pl.col("alone")).alias("more_s"))
    return spent(own.filter(~pl.col("rank").is_in(slow.ranks if slow else ())), alone, more)


def _why_slower(used: Spent | None) -> str:
    use = used.use if used else None
    if use == "queueing":
        return "The workers take cores from each other, or something else does: for most of it they wait for a core."
    if use == "collecting":
        return "For most of it Python collects garbage."
    if use == "idle":
        return (
            "For most of it they neither compute nor wait for a core: they sleep or wait, such as for a disk, a lock, "
            "or each other."
        )
    return (
        "The workers share what each has for itself when alone: memory bandwidth, caches, the clock of the cores; "
        "synchronisation beside it takes some of it, too."
    )


def _remedy(seen: Seen, cell: CellAnalysis, origin: CellAnalysis, used: Spent | None) -> tuple[str, str | None]:
    use = used.use if used else None
    if cell.record and cell.record.placement and cell.record.placement.processes < cell.world_size:
        return (
            f"Give each worker a process of its own, as {OVERLAPPING[0]} does.",
            focused(seen.settings, cell, cell.strategy, OVERLAPPING[0]),
        )
    if use == "idle":
        return "Look at what forward, backward or optimizer wait for where there are several workers.", None
    if use == "collecting":
        return "Call gc.freeze() once model and data are built, or keep fewer objects.", None
    threads = cell.threads_per_worker or 1
    if threads > 1:
        return (
            f"Try {several(threads - 1, 'thread')} per worker: a core that is free carries the messages.",
            focused(seen.settings, cell, threads_per_worker=threads - 1),
        )
    if use == "queueing" or not traces.can_be_traced(seen, cell):
        return "Look at what else runs on these cores, or train with fewer workers on this host.", None
    sizes = {} if origin.strategy != cell.strategy else {"world_sizes": (1, cell.world_size)}
    return (
        "Trace both: the advice then says which operators take longer with several workers than with one.",
        focused(seen.settings, cell, profile=True, **sizes),
    )
