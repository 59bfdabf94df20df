"""Steps that take longer at regular distances: something that the training does now and then."""

from collections.abc import Iterator

from worldsize.analysis.advice.finding import at_most, cell_name, count_of, time_of
from worldsize.analysis.advice.long_steps import Stall
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_text
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.recurring import NAMES
from worldsize.results.records import Estimate


def periodic_stall(seen: Seen) -> Iterator[Candidate]:
    """Some steps take longer, at regular distances or for garbage."""
    for cell in seen.cells:
        stall = seen.stall(cell)
        if stall is None:
            continue
        found, collected = stall.steps, stall.collected
        often = f"Every {found.every} steps, one" if found.every else f"{percent_text(found.share)} of the steps"
        takes = "takes" if found.every else "take"
        long_ms, typical_ms = (number_text(1e3 * each) for each in (stall.long_s, found.typical_s))
        yield candidate(
            "periodic-stall",
            cell,
            finding=f"{often} of {cell_name(cell)} {takes} {long_ms} ms in place of {typical_ms}"
            f"{_where(seen, cell, stall)}.",
            evidence=(
                time_of("Median step", found.typical_s),
                time_of("Mean of the long steps", stall.long_s),
                *([count_of("Steps from one to the next", found.every)] if found.every else []),
                *([time_of("Garbage collection per step, on the rank that has most", collected)] if collected else []),
            ),
            cause=_cause(collected, own_loop=not seen.trains),
            next_step=_next_step(found.every, collected),
            command=None,
            gain=at_most(
                stall.gain, "Step ÷ (step − what the long steps take more); assumes that each takes as the median."
            ),
        )


def _where(seen: Seen, cell: CellAnalysis, stall: Stall) -> str:
    """The part that has most of it, and the ranks where only some have it; or that it is garbage."""
    ranks = seen.stalled_ranks(cell)
    if stall.collected is not None:
        return ", collecting garbage" + (f" on {ranks_text(ranks)}" if ranks else "")
    part = f", most of it in {NAMES[stall.steps.part]}" if stall.steps.part else ""
    return f"{part} of {ranks_text(ranks)}" if part and ranks else part


def _cause(collected: Estimate | None, *, own_loop: bool) -> str:
    if collected is not None:
        return "Python collects garbage: the more objects there are, the longer it takes."
    if not own_loop:  # worldsize's does the same in each step, and saves and evaluates between them
        return "Something that is not done in each step: by the model, by the loader, or by the machine."
    return "Something that is not done in each step: a checkpoint, an evaluation, logging."


def _next_step(every: int | None, collected: Estimate | None) -> str:
    if collected is not None:
        return "Call gc.freeze() once model and data are built, or gc.disable() and collect between epochs."
    often = f"every {every} steps" if every else "in these steps"
    return f"Look at what happens {often}; do it less often, or beside the training."
