"""Speed-ups that cannot be printed, or not be trusted, for want of a comparable baseline (method.md §6, §8)."""

from collections.abc import Iterator
from math import lcm
from typing import Any

from worldsize.analysis.advice.finding import Evidence, cell_name
from worldsize.analysis.advice.rule import Candidate, Seen, candidate
from worldsize.analysis.commands import by_steps, study_command
from worldsize.analysis.headline import scaling_row
from worldsize.analysis.scaling import ScalingRow
from worldsize.traits import BASELINE_STRATEGY


def baseline_not_comparable(seen: Seen) -> Iterator[Candidate]:
    """Cells of several workers without a speed-up, or with one that has the machine's drift in it."""
    for cell in seen.several:
        row = scaling_row(seen.analysis, cell)
        if row is None or (found := _problem(row)) is None:
            continue
        problem, cause = found
        next_step, command = _remedy(seen, row)
        yield candidate(
            "baseline-not-comparable",
            cell,
            finding=f"{cell_name(cell)} {problem}.",
            evidence=_evidence(row),
            cause=cause,
            next_step=next_step,
            command=command,
            first=True,
        )


def _problem(row: ScalingRow) -> tuple[str, str] | None:
    """What is wrong with the comparison, and why; None if nothing is, or if it is another rule's business."""
    if row.speedup is not None:
        if row.speedup.paired:
            return None
        return (
            "was not timed in turn with its baseline",
            "They were measured at different times, so the drift of the machine is in their ratio.",
        )
    if row.baseline is None:
        return "has nothing to be compared with", "No cell of one worker with the same batch is in this study."
    if row.baseline.summary is None:
        return f"has no speed-up: {row.baseline.id} has no numbers", f"The baseline was not measured: {_why(row)}."
    threads = row.cell.threads_per_worker, row.baseline.threads_per_worker
    if threads[0] != threads[1]:
        return (
            f"has another number of threads per worker than {row.baseline.id}",
            f"{threads[0]} against {threads[1]}: their ratio would be that of the threads.",
        )
    return None  # more threads than cores


def _why(row: ScalingRow) -> str:
    reason = row.baseline.reason if row.baseline else None
    return (reason or "unknown").rstrip(".").split("\n")[0]


def _evidence(row: ScalingRow) -> Iterator[Evidence]:
    yield Evidence("Baseline", row.baseline.id if row.baseline else "none")
    if row.withheld:
        yield Evidence("Speed-up", row.withheld)


def _remedy(seen: Seen, row: ScalingRow) -> tuple[str, str | None]:
    """Next step and command: the same study again is of no use where one worker cannot hold the whole batch."""
    error = row.baseline.record.error if row.baseline and row.baseline.record else None
    whole = seen.settings.global_batch
    if whole is None or error is None or error.kind != "OutOfMemory":
        return "Time one worker and several in one study: same batch, same threads, in turn.", _command(seen, row)
    # Of half the batch or less, the largest that each number of workers divides.
    parts = lcm(*(cell.world_size for cell in seen.analysis.cells))
    smaller = whole // 2 // parts * parts
    if not smaller:
        return "Give one worker more memory: it has to hold the whole batch.", None
    return (
        f"Use a smaller global batch, such as B = {smaller:,}, or give one worker more memory: it has to hold the "
        "whole batch.",
        _command(seen, row, global_batch=smaller),
    )


def _command(seen: Seen, row: ScalingRow, **more: Any) -> str | None:
    """The study again, in one go and by steps in turn, with the baseline in it."""
    settings, sizes = seen.settings, sorted({1, *(cell.world_size for cell in seen.analysis.cells)})
    changes: dict[str, Any] = {
        "strategies": tuple(dict.fromkeys((BASELINE_STRATEGY, *settings.strategies))),
        "world_sizes": tuple(sizes),
        "threads_per_worker": settings.threads_per_worker or row.cell.threads_per_worker,
        **more,
    }
    return study_command(by_steps(settings), **changes)
