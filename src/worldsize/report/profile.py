"""What a report shows of a profile: one Chrome trace of all ranks of a cell, and a table (docs/profiles.md).

The trace is on one clock, for Perfetto; the table says what torch's profiler saw of the steps, beside the timeline.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from worldsize.analysis.cells import CellAnalysis
from worldsize.analysis.profile import MAX_RANKS, RankProfile, Shares
from worldsize.analysis.study import StudyAnalysis
from worldsize.errors import OutputError
from worldsize.report.columns import ColumnOf, integers, numbers, table_of, texts
from worldsize.report.tables import Table
from worldsize.results.traces import (
    COLLECTIVE,
    COMMUNICATION_THREAD,
    STEP_MARK,
    ProfiledRank,
    Trace,
    TraceEvent,
    rank_trace,
    read_profile,
    read_trace,
)

KEPT = (
    "cpu_op",
    "user_annotation",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "gpu_user_annotation",
    "cuda_runtime",
    "cuda_driver",
)
"""Categories that are shown beside the collectives; stacks of Python and what a driver says of itself are not."""
ARROWS = ("fwdbwd", "ac2g")
"""Categories of arrows: from forward to backward, from a launch to its kernel."""
WITH_DETAILS = (COLLECTIVE, "kernel", "gpu_memcpy")
"""Categories whose arguments are kept; those of operators are numbers that only torch understands."""
THREADS_PER_RANK = 100_000
"""Threads are numbered anew, so that no two ranks share a number: some viewers know threads by that alone."""

Event = dict[str, Any]
Thread = tuple[int | str, int | str]
Arrow = tuple[int, str, str | None]
"""Rank, category and the number in its own trace; Perfetto wants plain numbers, and no two ranks may share one."""
NOTE = (
    "Steps under torch.profiler, after the timed ones, beside what the timeline says of the timed steps. Compute: "
    "operators (kernels on a GPU); communication: messages that the timeline or the trace has; overlapped: both at "
    "once. All are shares of the step. Difference: profile − timeline, in points of the step (docs/profiles.md)."
)
HOW_TO_OPEN = "Open a trace at https://ui.perfetto.dev or in chrome://tracing"
SHARES = ("compute", "communication", "overlapped")


def trace_name(cell_id: str) -> str:
    """File of a cell's merged trace in the report's folder."""
    return f"trace-{cell_id}.json"


def merged_trace(cell_folder: Path, cell_id: str) -> str | None:
    """The traces of all ranks of a cell as one, in JSON; None without a trace that can be read.

    Each rank is a process. Times are on rank 0's clock: ts·1000 + zero_ns + clock_offset_ns (ProfiledRank), and the
    earliest event is at 0.
    """
    try:
        record = read_profile(cell_folder)
    except OutputError:
        return None  # the analysis says why
    traces = {}
    for each in record.ranks[:MAX_RANKS] if record else ():
        try:
            traces[each.rank] = (each, read_trace(rank_trace(cell_folder, each.rank)))
        except OutputError:
            continue
    return json.dumps(_merged(cell_id, traces), separators=(",", ":"), allow_nan=False) if traces else None


def _merged(cell_id: str, traces: dict[int, tuple[ProfiledRank, Trace]]) -> dict[str, Any]:
    kept = {rank: [event for event in trace.events if _is_kept(event)] for rank, (_, trace) in traces.items()}
    shifts = {rank: record.zero_ns + record.clock_offset_ns for rank, (record, _) in traces.items()}
    arrows: dict[Arrow, int] = {}
    origin = min((event.start_ns + shifts[rank] for rank, events in kept.items() for event in events), default=0)
    timed = [
        event
        for rank, events in kept.items()
        for event in _of_rank(rank, events, traces[rank][1], shifts[rank] - origin, arrows)
    ]
    first = min(traces)
    backend, world_size = (traces[first][1].distributed.get(key) for key in ("backend", "world_size"))
    return {
        "schemaVersion": 1,
        "traceName": trace_name(cell_id),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": traces[first][1].base_ns + origin - shifts[first],
        "distributedInfo": {
            "backend": backend if isinstance(backend, str) else "unknown",
            "world_size": world_size if isinstance(world_size, int) else len(traces),
        },
        "clocks": {
            str(rank): {"offset_ns": record.clock_offset_ns, "error_ns": record.clock_error_ns + record.zero_error_ns}
            for rank, (record, _) in traces.items()
        },
        "traceEvents": [
            *(each for rank, (record, trace) in traces.items() for each in _described(cell_id, record, trace)),
            *sorted(timed, key=lambda event: (event["ts"], -event.get("dur", 0))),
        ],
    }


def _is_kept(event: TraceEvent) -> bool:
    return (event.phase == "X" and event.category in (*KEPT, COLLECTIVE)) or (
        event.phase in ("s", "f") and event.category in ARROWS and event.id is not None
    )


def _of_rank(
    rank: int, events: Iterable[TraceEvent], trace: Trace, shift_ns: int, arrows: dict[Arrow, int]
) -> Iterator[Event]:
    """The events of one rank, on rank 0's clock and in a process of its own; `arrows` are those numbered so far."""
    number = _numbers(rank, trace)
    for event in events:
        made: Event = {
            "ph": event.phase,
            "cat": event.category,
            "name": event.name,
            "pid": rank,
            "tid": number(event.thread),
            "ts": (event.start_ns + shift_ns) / 1000,
        }
        if event.phase == "X":
            made["dur"] = (event.end_ns - event.start_ns) / 1000
            if event.category in WITH_DETAILS:
                made["args"] = dict(_plain(event.args))
        else:
            made["id"] = arrows.setdefault((rank, event.category, event.id), len(arrows) + 1)
            made |= {"bp": "e"} if event.phase == "f" else {}
        yield made


def _plain(args: dict[str, Any]) -> Iterator[tuple[str, str | int | float]]:
    """Words and numbers; nothing else of a file is carried on."""
    for name, value in args.items():
        if isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
            yield name, value


def _training(trace: Trace) -> set[Thread]:
    """The thread on which the steps are marked; a GPU repeats the marks on its streams."""
    marks = [event for event in trace.events if event.phase == "X" and event.name.startswith(STEP_MARK)]
    return {mark.thread for mark in marks if mark.category == "user_annotation"}


def _threads(trace: Trace) -> list[Thread]:
    """The threads of a rank in the order in which they are shown: training first, then communication."""
    training = _training(trace)
    others = dict.fromkeys(event.thread for event in trace.events if _is_kept(event))
    return sorted(others, key=lambda thread: (thread not in training, not _carries_messages(thread)))


def _numbers(rank: int, trace: Trace) -> Callable[[Thread], int]:
    """The new number of each thread; never 0, which some viewers take for an idle processor."""
    known = {thread: rank * THREADS_PER_RANK + place for place, thread in enumerate(_threads(trace), start=1)}
    return known.__getitem__


def _carries_messages(thread: Thread) -> bool:
    return isinstance(thread[1], int) and thread[1] >= COMMUNICATION_THREAD


def _described(cell_id: str, record: ProfiledRank, trace: Trace) -> Iterator[Event]:
    """Names and order of a rank's process and threads."""
    rank = record.rank
    error_us = (record.clock_error_ns + record.zero_error_ns) / 1000
    names = {
        event.thread: event.args["name"]
        for event in trace.events
        if event.phase == "M" and event.name == "thread_name" and isinstance(event.args.get("name"), str)
    }
    training = _training(trace)
    yield _about("process_name", rank, 0, name=f"rank {rank} · {cell_id}")
    yield _about("process_labels", rank, 0, labels=f"clock ± {error_us:.1f} µs")
    yield _about("process_sort_index", rank, 0, sort_index=rank)
    number = _numbers(rank, trace)
    for place, thread in enumerate(_threads(trace)):
        ours = "training" if thread in training else names.get(thread, f"thread {thread[1]}")
        yield _about("thread_name", rank, number(thread), name=ours)
        yield _about("thread_sort_index", rank, number(thread), sort_index=place)


def _about(what: str, rank: int, thread: int, **args: str | int) -> Event:
    return {"ph": "M", "name": what, "pid": rank, "tid": thread, "ts": 0, "args": args}


class _Rank(NamedTuple):
    cell_id: str
    seen: RankProfile


def profile_table(analysis: StudyAnalysis) -> Table:
    """A line for each rank of a cell that was profiled."""
    columns: list[ColumnOf[_Rank]] = [
        texts("Cell", "cell", lambda row: row.cell_id),
        integers("Rank", "rank", lambda row: row.seen.rank),
        numbers("Step", "step_s", lambda row: row.seen.profile.step_s, "ms"),
        numbers(
            "Step, timeline",
            "timeline_step_s",
            lambda row: timed.step_s if (timed := row.seen.timeline) else None,
            "ms",
        ),
        *(column for name in SHARES for column in _share(name)),
    ]
    rows = (_Rank(cell.id, rank) for cell in profiled(analysis) if cell.profile for rank in cell.profile.ranks)
    files = ", ".join(trace_name(cell.id) for cell in profiled(analysis))
    return table_of("profile", "Profile", columns, rows, f"{NOTE} {HOW_TO_OPEN}: {files}.")


def profiled(analysis: StudyAnalysis) -> list[CellAnalysis]:
    """The cells that have a trace."""
    return [cell for cell in analysis.cells if cell.profile is not None and cell.profile.ranks]


def _share(name: str) -> list[ColumnOf[_Rank]]:
    """A share of the step, that of the timeline, and by how much they differ."""

    def share(found: Shares | None) -> float | None:
        value: float | None = getattr(found, name, None)
        return value

    def difference(row: _Rank) -> float | None:
        ours, theirs = share(row.seen.profile), share(row.seen.timeline)
        return None if ours is None or theirs is None else ours - theirs

    return [
        numbers(name.capitalize(), f"{name}_share", lambda row: share(row.seen.profile), "%"),
        numbers(f"{name.capitalize()}, timeline", f"timeline_{name}_share", lambda row: share(row.seen.timeline), "%"),
        numbers(f"{name.capitalize()}, difference", f"{name}_difference", difference, "points"),
    ]
