"""What a step does beside training: waiting for data, copies to the device, work of the loop itself."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice.finding import PART_WORDS, Evidence, at_most, cell_name, share, time_of
from worldsize.analysis.advice.gains import (
    COPY_MOST,
    DATA_WAIT_MOST,
    OTHER_MOST,
    STEP_MOST,
    Part,
    notable,
    part,
    without,
)
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.commands import focused
from worldsize.results.records import Estimate

PARTS_OF_A_LOOP = ("data_wait_s", "forward_s", "backward_s", "exposed_sync_s", "optimizer_s")
"""Those that can be seen in a script; copies cannot."""
MORE = (
    "more worker processes, or make a sample cheaper (decode and resize it once). If epochs are short, keep its "
    "processes from one to the next (persistent_workers=True)."
)


def input_bound(seen: Seen) -> Iterator[Candidate]:
    """A rank waits for its next batch for a notable part of its step."""
    for cell in seen.cells:
        found = _held_up(seen, cell, "data_wait_s", DATA_WAIT_MOST)
        if found is None:
            continue
        waiting, gain = found
        cause, next_step, command = _remedy(seen, cell)
        yield candidate(
            "input-bound",
            cell,
            finding=f"{_who(cell)} waits for data for {share(waiting.share)} of its step.",
            evidence=(time_of(_label(cell), waiting.seconds), Evidence("Loader", _loader(seen))),
            cause=cause,
            next_step=next_step,
            command=command,
            gain=at_most(
                gain,
                f"Step ÷ (step − data wait{_whose(cell)}); assumes that every batch is there when it is needed.",
            ),
        )


def copy_bound(seen: Seen) -> Iterator[Candidate]:
    """Batches take a notable part of the step on their way to the device."""
    for cell in seen.cells:
        found = _held_up(seen, cell, "copy_s", COPY_MOST)
        if found is None:
            continue
        copying, gain = found
        yield candidate(
            "copy-bound",
            cell,
            finding=f"{cell_name(cell)} copies its batches to the device for {share(copying.share)} of its step"
            f"{_of_most(cell)}.",
            evidence=(time_of(f"Copies per step{_of_most(cell)}", copying.seconds),),
            cause="The step before is too short to hide the copy of the next batch: the link to the device, or the "
            "memory of the host, is the limit.",
            next_step="Send less: bytes that become floats on the device, or smaller samples.",
            command=None,
            gain=at_most(gain, f"Step ÷ (step − copies{_of_most(cell)}); assumes that all of them are hidden."),
        )


def other_work(seen: Seen) -> Iterator[Candidate]:
    """A loop of the user's own spends a notable part of its step outside of everything that was seen of training.

    Not where that is what some steps do now and then.
    """
    if seen.trains:
        return  # there it is our own bookkeeping
    for cell in seen.cells:
        found, stall = _held_up(seen, cell, "other_s", OTHER_MOST), seen.stall(cell)
        if found is None or (stall is not None and stall.steps.part == "other_s"):
            continue
        working, gain = found
        known = [name for name in PARTS_OF_A_LOOP if seen.blocks(cell)[name].null_count() == 0]
        waits = "" if "data_wait_s" in known else " It may wait for data, too, which was not seen here."
        yield candidate(
            "other-work",
            cell,
            finding=f"{cell_name(cell)} spends {share(working.share)} of its step{_of_most(cell)} outside of "
            f"{', '.join(PART_WORDS[name] for name in known) or 'what was seen of training'}.",
            evidence=(time_of(f"The rest of the step{_of_most(cell)}", working.seconds),),
            cause="The loop does something else in each step: logging, metrics, loss.item(), clipping, copies to a "
            f"device, a sleep, a barrier.{waits}",
            next_step="Look at what the loop does beside forward, backward and the optimizer's step; do it less often.",
            command=None,
            gain=at_most(
                gain, f"Step ÷ (step − the rest of the step{_of_most(cell)}); assumes that nothing of it is needed."
            ),
        )


def _held_up(seen: Seen, cell: CellAnalysis, column: str, most: pl.Expr) -> tuple[Part, Estimate] | None:
    """A part of the step that only holds it up, and its gain; None where it is not notable, or of a slow rank alone."""
    blocks, slow = seen.blocks(cell), seen.slow_ranks(cell)
    if slow and slow.alone_in == column:
        return None
    found, gain = part(blocks, most, STEP_MOST), without(blocks, most, STEP_MOST)
    return (found, gain) if found is not None and gain is not None and notable(found.share) else None


def _of_most(cell: CellAnalysis) -> str:
    return " (of the rank that has most)" if ranks_of(cell) > 1 else ""


def _who(cell: CellAnalysis) -> str:
    several = ranks_of(cell) > 1
    return f"Of {cell_name(cell)}, the rank that waits longest" if several else cell_name(cell)


def _label(cell: CellAnalysis) -> str:
    return "Data wait per step" + (", of the rank that waits longest" if ranks_of(cell) > 1 else "")


def _whose(cell: CellAnalysis) -> str:
    """The others wait for that rank, so no more than its wait can be saved, and no less."""
    return " of the rank that waits longest" if ranks_of(cell) > 1 else ""


def _loader(seen: Seen) -> str:
    settings = seen.settings
    if not seen.trains:
        return "that of the script"
    if settings.workload is not None:
        return "that of the workload"
    if settings.loader == "batched" and not _of_a_user(seen):
        return "batched"
    workers = settings.loader_workers
    return f"{settings.loader}, {workers} worker {'process' if workers == 1 else 'processes'} per rank"


def _of_a_user(seen: Seen) -> bool:
    data = seen.analysis.record.data
    return data is not None and data.verification == "user"


def _remedy(seen: Seen, cell: CellAnalysis) -> tuple[str, str, str | None]:
    """Likely cause, next step and command."""
    settings = seen.settings
    if not seen.trains:
        return (
            "The loop takes its samples faster than its input pipeline makes them.",
            f"Give the input pipeline {MORE}",
            None,
        )
    if settings.workload is not None:
        return (
            f"{settings.workload} makes its batches more slowly than the model takes them.",
            f"Give the loader in batches() {MORE}",
            None,
        )
    if _of_a_user(seen):
        more = max(1, 2 * settings.loader_workers)
        return (
            f"{settings.data} makes its samples more slowly than the model takes them.",
            f"Give its Dataset {more} worker processes per rank, or make a sample cheaper (decode and resize it once).",
            focused(settings, cell, loader_workers=more),
        )
    if settings.loader == "per-sample":
        return (
            "The per-sample loader decodes, crops and collates one image at a time.",
            "Use the batched loader, which augments whole batches at once.",
            focused(settings, cell, loader="batched"),
        )
    return (
        "The batched loader runs in the training process, and its limit is how fast memory is copied (method.md §12).",
        "Make a batch cheaper: smaller images, or tensors that are ready as they are (--data file.py:factory).",
        None,
    )
