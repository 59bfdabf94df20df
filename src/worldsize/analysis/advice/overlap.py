"""Communication during backward: where more of it could be hidden, and where all of it is."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice import traces
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, share, time_of
from worldsize.analysis.advice.gains import EXPOSED, MOSTLY, NOTABLE, STEP, notable, without
from worldsize.analysis.advice.gradient_sync import GradientSync
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.commands import focused
from worldsize.analysis.steps import per_step
from worldsize.traits import BUCKETED

COMPUTING = STEP - EXPOSED
"""What a step takes if all communication is hidden."""
IN_A_ROW = STEP - EXPOSED - pl.col("backward_s") + pl.col("comm_s")
"""What it takes if synchronisation starts with the first gradient, never stops, and takes as long (method.md §12)."""
REACHABLE = pl.max_horizontal(COMPUTING, IN_A_ROW)


def overlap_incomplete(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that would fit beside backward, if it began earlier or in smaller pieces."""
    for cell in seen.several:
        sync = seen.gradient_sync(cell)
        if sync.limit not in ("bandwidth", "unknown") or cell.communication is None or _planned(seen, sync):
            continue  # a root, or latency, is to be left out first, and the transfer is another one then
        if cell.traits.travels != "gradients":  # what its buckets would carry
            continue
        if seen.waits_only(cell):  # buckets do not make a slow rank faster
            continue
        gain, reachable = without(sync.blocks, STEP - REACHABLE), per_step(sync.blocks, REACHABLE)
        if gain is None or reachable is None or not notable(gain, 1 + NOTABLE):
            continue
        cause, next_step, command = _remedy(seen, sync)
        yield candidate(
            "overlap-incomplete",
            cell,
            finding=f"{cell_name(cell)} hides {_hidden(sync)} of its communication behind backward, and more would "
            "fit.",
            evidence=(*_parts(sync), time_of("Step with the best overlap", reachable)),
            cause=cause,
            next_step=next_step,
            command=command,
            gain=at_most(
                gain,
                "If all communication runs beside backward from its first gradient on, and takes as long as here "
                "(method.md §12).",
            ),
        )


def overlapped_already(seen: Seen) -> Iterator[Candidate]:
    """Communication that is hidden so well that a faster link would gain next to nothing."""
    for cell in seen.several:
        sync = seen.gradient_sync(cell)
        exposed, hidden, gain = sync.exposed, sync.hidden, without(sync.blocks, EXPOSED)
        if exposed is None or hidden is None or gain is None or not notable(sync.share):
            continue
        if not notable(hidden, MOSTLY) or exposed.share.high is None or exposed.share.high >= NOTABLE:
            continue
        yield candidate(
            "overlapped-already",
            cell,
            finding=f"{cell_name(cell)} hides {share(hidden)} of its communication behind computing: more bandwidth "
            "will not help.",
            evidence=_parts(sync),
            cause="Backward takes longer than the messages, which travel meanwhile.",
            next_step=f"Leave the link as it is: computing takes the time.{traces.longest(cell)}",
            command=focused(seen.settings, cell, profile=True) if traces.can_be_traced(seen, cell) else None,
            gain=at_most(
                gain,
                "Step ÷ (step − exposed communication); assumes a link without any delay.",
                of=" from any faster link",
            ),
        )


def _planned(seen: Seen, sync: GradientSync) -> bool:
    """Whether the buckets are planned already: there is no better plan to try."""
    return sync.cell.traits.buckets and seen.settings.bucket_mb == "auto"


def _hidden(sync: GradientSync) -> str:
    hidden = sync.hidden
    return "nothing" if hidden is None or not hidden.value else share(hidden)


def _parts(sync: GradientSync) -> Iterator[Evidence]:
    if sync.exposed is not None:
        yield time_of("Exposed communication per step", sync.exposed.seconds)
    if sync.overlapped is not None:
        yield time_of("Overlapped with computing per step", sync.overlapped.seconds)
    backward = per_step(sync.blocks, pl.col("backward_s"))
    if backward is not None:
        yield time_of("Backward per step", backward)


def _remedy(seen: Seen, sync: GradientSync) -> tuple[str, str, str | None]:
    """Likely cause, next step and command."""
    settings, cell = seen.settings, sync.cell
    if cell.traits.buckets:
        return (
            "The last bucket travels when backward is over, and nothing hides it; large buckets also begin late.",
            f"Plan the buckets with the measured link, for {' and for '.join(BUCKETED)}.",
            focused(settings, cell, *BUCKETED, bucket_mb="auto"),
        )
    return (
        f"{cell.strategy} begins to synchronise when backward is over.",
        "Use a strategy that sends gradients during backward.",
        focused(settings, cell, cell.strategy, *BUCKETED, bucket_mb="auto"),
    )
