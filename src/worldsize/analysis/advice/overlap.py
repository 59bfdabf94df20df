"""Communication during backward: where more of it could be hidden, and where all of it is."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice.commands import focused
from worldsize.analysis.advice.exchange import Exchange
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, share, time_of
from worldsize.analysis.advice.gains import EXPOSED, NOTABLE, STEP, notable, without
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.steps import per_step
from worldsize.traits import BUCKETED

MOSTLY = 0.5

COMPUTING = STEP - EXPOSED
"""What a step takes if all communication is hidden."""
IN_A_ROW = STEP - EXPOSED - pl.col("backward_s") + pl.col("comm_s")
"""What it takes if the exchange begins with the first gradient, never stops, and is as long as here (method.md §12)."""
REACHABLE = pl.max_horizontal(COMPUTING, IN_A_ROW)


def overlap_incomplete(seen: Seen) -> Iterator[Candidate]:
    """Exposed communication that would fit beside backward, if it began earlier or in smaller pieces."""
    for cell in seen.several:
        exchange = seen.exchange(cell)
        if exchange.limit not in ("bandwidth", "unknown") or cell.communication is None or _planned(seen, exchange):
            continue  # a root, or latency, is to be left out first, and the transfer is another one then
        gain, reachable = without(exchange.blocks, STEP - REACHABLE), per_step(exchange.blocks, REACHABLE)
        if gain is None or reachable is None or not notable(gain, 1 + NOTABLE):
            continue
        cause, next_step, command = _remedy(seen, exchange)
        yield candidate(
            "overlap-incomplete",
            cell,
            finding=f"{cell_name(cell)} hides {_hidden(exchange)} of its communication behind backward, and more would "
            "fit.",
            evidence=(*_parts(exchange), time_of("Step with the best overlap", reachable)),
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
        exchange = seen.exchange(cell)
        exposed, hidden, gain = exchange.exposed, exchange.hidden, without(exchange.blocks, EXPOSED)
        if exposed is None or hidden is None or gain is None or not notable(exchange.share):
            continue
        if not notable(hidden, MOSTLY) or exposed.share.high is None or exposed.share.high >= NOTABLE:
            continue
        yield candidate(
            "overlapped-already",
            cell,
            finding=f"{cell_name(cell)} hides {share(hidden)} of its communication behind computing: more bandwidth "
            "will not help.",
            evidence=_parts(exchange),
            cause="Backward takes longer than the messages, which travel meanwhile.",
            next_step="Leave the link as it is, and look at a trace: which operators take the time?",
            command=focused(seen.settings, cell, profile=True),
            gain=at_most(
                gain,
                "Step ÷ (step − exposed communication); assumes a link without any delay.",
                of=" from any faster link",
            ),
        )


def _planned(seen: Seen, exchange: Exchange) -> bool:
    """Whether the buckets are planned already: there is no better plan to try."""
    return exchange.cell.traits.buckets and seen.settings.bucket_mb == "auto"


def _hidden(exchange: Exchange) -> str:
    hidden = exchange.hidden
    return "nothing" if hidden is None or not hidden.value else share(hidden)


def _parts(exchange: Exchange) -> Iterator[Evidence]:
    if exchange.exposed is not None:
        yield time_of("Exposed communication per step", exchange.exposed.seconds)
    if exchange.overlapped is not None:
        yield time_of("Overlapped with computing per step", exchange.overlapped.seconds)
    backward = per_step(exchange.blocks, pl.col("backward_s"))
    if backward is not None:
        yield time_of("Backward per step", backward)


def _remedy(seen: Seen, exchange: Exchange) -> tuple[str, str, str | None]:
    """Likely cause, next step and command."""
    settings, cell = seen.settings, exchange.cell
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
