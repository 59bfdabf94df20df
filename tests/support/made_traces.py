"""Traces of ranks with known truth, in the form that torch's profiler writes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worldsize.results.traces import (
    COLLECTIVE,
    COMMUNICATION_THREAD,
    ProfiledRank,
    ProfileRecord,
    rank_trace,
    write_profile,
)

PROCESS = 4242

Event = dict[str, Any]


def event(name: str, ts: float, dur: float, *, cat: str = "cpu_op", pid: int = PROCESS, tid: int = PROCESS) -> Event:
    """A complete event; times in µs."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": {"Ev Idx": 1}}


def message(name: str, ts: float, dur: float, *, blocking: bool = False, size: int = 4) -> Event:
    """A message that our timeline saw."""
    made = event(name, ts, dur, cat=COLLECTIVE, tid=COMMUNICATION_THREAD)
    return {**made, "args": {"kind": name.split()[0], "bytes": size, "blocking": blocking, "step": 0, "number": 0}}


def trace(*events: Any, rank: int = 0, world_size: int = 2) -> dict[str, Any]:
    """A whole file."""
    return {
        "schemaVersion": 1,
        "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": world_size},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "traceEvents": list(events),
    }


def rank_of(rank: int, *, start_us: float = 0.0) -> dict[str, Any]:
    """One step of 100 µs: 50 compute, 40 of a message, 20 of them at once; what is noise, and an arrow."""
    arrow = {"cat": "fwdbwd", "name": "fwdbwd", "pid": PROCESS, "tid": PROCESS, "id": 1}
    return trace(
        {
            "ph": "M",
            "name": "thread_name",
            "pid": PROCESS,
            "tid": PROCESS,
            "ts": 0,
            "args": {"name": "thread 1 (python)"},
        },
        event("ProfilerStep#0", start_us, 100, cat="user_annotation"),
        event("aten::mm", start_us + 10, 50),
        message("all_reduce 4 B", start_us + 40, 40),
        event("train.py(1): main", start_us, 100, cat="python_function"),
        {**arrow, "ph": "s", "ts": start_us + 10},
        {**arrow, "ph": "f", "bp": "e", "ts": start_us + 50},
        rank=rank,
    )


def write_traces(cell: Path, traces: Sequence[dict[str, Any]], records: Sequence[ProfiledRank] | None = None) -> None:
    """The profile of a cell: its traces by rank, and its record."""
    records = records or [record(rank) for rank in range(len(traces))]
    write_profile(cell, ProfileRecord(ranks=list(records)))
    for each, content in zip(records, traces, strict=True):
        rank_trace(cell, each.rank).write_text(json.dumps(content))


def record(rank: int, *, zero_ns: int = 0, offset_ns: int = 0, error_ns: int = 0) -> ProfiledRank:
    """How the clock of a rank is read."""
    return ProfiledRank(
        rank=rank, steps=1, zero_ns=zero_ns, zero_error_ns=1000, clock_offset_ns=offset_ns, clock_error_ns=error_ns
    )
