"""What a step does beside training: waiting for data, copies to the device, work of the loop itself."""

from collections.abc import Iterator

import polars as pl

from worldsize.analysis.advice.commands import focused
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, share, time_of
from worldsize.analysis.advice.gains import DATA_WAIT_MOST, STEP_MOST, Part, notable, part, without
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.cells import CellAnalysis
from worldsize.results.records import Estimate


def input_bound(seen: Seen) -> Iterator[Candidate]:
    """A rank waits for its next batch for a notable part of its step."""
    for cell in seen.cells:
        blocks = seen.blocks(cell)
        waiting, gain = part(blocks, DATA_WAIT_MOST, STEP_MOST), without(blocks, DATA_WAIT_MOST, STEP_MOST)
        if waiting is None or gain is None or not notable(waiting.share):
            continue
        slow = seen.slow_ranks(cell)
        if slow and slow.alone_in == "data_wait_s":
            continue  # the loader is fast enough on all other ranks
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
        found = _aside(seen, cell, pl.col("copy_s"))
        if found is None:
            continue
        copying, gain = found
        yield candidate(
            "copy-bound",
            cell,
            finding=f"{cell_name(cell)} copies its batches to the device for {share(copying.share)} of its step.",
            evidence=(time_of("Copies per step, mean over ranks", copying.seconds),),
            cause="A copy from pageable memory holds the training up; so does one in a wider type than it needs.",
            next_step="Pin the batches (pin_memory=True), copy the next one during this step (non_blocking=True), or "
            "send bytes and make floats of them on the device.",
            command=None,
            gain=at_most(gain, "Step ÷ (step − copies); assumes that all of them are hidden."),
        )


def other_work(seen: Seen) -> Iterator[Candidate]:
    """A loop of the user's own spends a notable part of its step outside of everything that training is."""
    if seen.trains:
        return  # there it is our own bookkeeping
    for cell in seen.cells:
        found = _aside(seen, cell, pl.col("other_s"))
        slow = seen.slow_ranks(cell)
        if found is None or (slow and slow.alone_in == "other_s"):
            continue
        working, gain = found
        yield candidate(
            "other-work",
            cell,
            finding=f"{cell_name(cell)} spends {share(working.share)} of its step outside data wait, forward, "
            "backward, communication and optimizer.",
            evidence=(time_of("The rest of the step, mean over ranks", working.seconds),),
            cause="The loop does something else in each step: logging, metrics, loss.item(), a sleep, a barrier.",
            next_step="Look at what the loop does between the optimizer's step and the next batch; do it less often.",
            command=None,
            gain=at_most(gain, "Step ÷ (step − the rest of the step); assumes that nothing of it is needed."),
        )


def _aside(seen: Seen, cell: CellAnalysis, value: pl.Expr) -> tuple[Part, Estimate] | None:
    """A part of the step that only holds it up, and its gain; None where it is not notable."""
    blocks = seen.blocks(cell)
    found, gain = part(blocks, value), without(blocks, value)
    return (found, gain) if found is not None and gain is not None and notable(found.share) else None


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
            "Give the input pipeline more worker processes, or make a sample cheaper (decode and resize it once).",
            None,
        )
    if settings.workload is not None:
        return (
            f"{settings.workload} makes its batches more slowly than the model takes them.",
            "Give the loader in batches() more worker processes, or make a sample cheaper (decode and resize it once).",
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
