"""What a script sends that it need not: gradients in each micro-batch, and collectives of its own."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice.finding import Evidence, Gain, at_most, cell_name, megabytes, share, time_of
from worldsize.analysis.advice.gains import (
    DATA_WAIT_MOST,
    EXPOSED,
    MOSTLY,
    STEP,
    STEP_MOST,
    notable,
    part,
    ratio_of,
    without,
)
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.own_loops import Sends
from worldsize.analysis.steps import BLOCK, ratio_over
from worldsize.results.records import Estimate

ALL = pl.col("comm_s")


def synced_too_often(seen: Seen) -> Iterator[Candidate]:
    """Accumulated gradients that travel in more than one backward of a step."""
    for cell in seen.several:
        sends = seen.sends(cell)
        if sends is None or sends.synchronised < 2:
            continue
        sent = part(seen.blocks(cell), ALL)
        gain = without(seen.blocks(cell), ALL)
        if sent is None or gain is None or not notable(sent.share):
            continue
        yield candidate(
            "synced-too-often",
            cell,
            finding=f"{cell_name(cell)} synchronises gradients in {sends.synchronised} of the {sends.backwards} "
            "backwards of a step.",
            evidence=(time_of("Communication per step, hidden or not", sent.seconds),),
            cause="DDP sends all gradients in every backward; with accumulated gradients only the last one needs it.",
            next_step="Run all but the last micro-batch of a step within `with model.no_sync():`; the weights stay the "
            "same.",
            command=None,
            gain=at_most(gain, "Step ÷ (step − all communication, for what is hidden slows computing as well)."),
            leads=not _waits_for_data(seen, cell),
        )


def own_collectives(seen: Seen) -> Iterator[Candidate]:
    """Collectives that a loop calls beside those of DDP, and that hold its ranks."""
    for cell in seen.several:
        sends = seen.sends(cell)
        if sends is None or not sends.own:
            continue
        blocks = seen.blocks(cell).join(sends.own_s, on=BLOCK)
        held, gain = part(blocks, pl.col("own_s")), without(blocks, pl.col("own_s") + pl.col("other_s"))
        most = ratio_over(blocks, pl.col("own_s"), EXPOSED)
        if held is None or gain is None or not notable(held.share) or seen.waits_only(cell):
            continue
        yield candidate(
            "own-collectives",
            cell,
            finding=f"{cell_name(cell)} spends {share(held.share)} of its step in collectives that the loop itself "
            "calls.",
            evidence=(time_of("In these per step", held.seconds), Evidence("Per step", _listed(sends))),
            cause="They are no gradients of DDP, and nothing is computed meanwhile.",
            next_step="Call them less often, send less (numbers in place of objects and weights), or join them in one.",
            command=None,
            gain=_bound(seen, cell, gain),
            leads=most is not None and most.value > MOSTLY and not _waits_for_data(seen, cell),
        )


def _waits_for_data(seen: Seen, cell: CellAnalysis) -> bool:
    """Whether a rank notably waits for its data: what it loses to its collectives may be made up for there."""
    return notable(ratio_over(seen.blocks(cell), DATA_WAIT_MOST, STEP_MOST))


def _bound(seen: Seen, cell: CellAnalysis, gain: Estimate) -> Gain | None:
    """What a step may gain without its own collectives.

    While they travel gloo's threads slow what is computed next to them as well, so their time alone is no bound (1.77
    where a script without them was 1.86 times as fast): a worker that sends nothing is one, where that leaves more.
    """
    one = seen.find(cell.strategy, 1, cell.batch_size)
    alone = None if one is None else ratio_of(seen.blocks(cell), seen.blocks(one), STEP)
    if alone is not None and alone.value > gain.value:
        return at_most(alone, "Step ÷ that of one worker, which sends nothing.")
    return at_most(gain, "Step ÷ (step − these collectives − the rest of the step, where objects are packed).")


def _listed(sends: Sends) -> str:
    return ", ".join(f"{count:.3g} {kind} of {megabytes(size)}" for kind, count, size in sends.own)
