"""Waiting for data."""

from collections.abc import Iterator

from worldsize.analysis.advice.commands import focused
from worldsize.analysis.advice.finding import Evidence, at_most, cell_name, share, time_of
from worldsize.analysis.advice.gains import DATA_WAIT_MOST, STEP_MOST, notable, part, without
from worldsize.analysis.advice.rule import Candidate, Seen, candidate, ranks_of
from worldsize.analysis.cells import CellAnalysis


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
