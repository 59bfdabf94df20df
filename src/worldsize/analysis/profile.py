"""Shares of compute and communication in the traces of a profile, beside the timeline's own (docs/profiles.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from worldsize.analysis.breakdown import COMPUTE_PARTS
from worldsize.analysis.intervals import Intervals, difference, intersection, length, union
from worldsize.analysis.operators import operator_times
from worldsize.analysis.parts import with_parts
from worldsize.errors import OutputError
from worldsize.results.folder import Cell
from worldsize.results.traces import COLLECTIVE, STEP_MARK, Trace, TraceEvent, rank_trace, read_profile, read_trace

BACKENDS = ("nccl", "gloo:")
"""How the names of a backend's own events begin, in any case of letters: nccl's kernels, gloo's ranges."""
OPERATORS_OF_COLLECTIVES = ("c10d::", "record_param_comms")
"""Operators that only hand a message to the backend."""
KERNELS = ("kernel", "gpu_memset")
MAX_RANKS = 16
"""Ranks whose traces are read, the first ones: each takes seconds, and a merged trace of more opens nowhere."""


@dataclass(frozen=True)
class Shares:
    """What a rank does in its steps; shares of the step, 0 to 1."""

    step_s: float
    """Mean length of a step."""
    compute: float
    communication: float
    overlapped: float
    """Communication during compute; the rest of it is exposed."""

    @property
    def exposed(self) -> float:
        """Communication during which the rank computes nothing (method.md §3)."""
        return self.communication - self.overlapped


@dataclass(frozen=True)
class RankProfile:
    """The steps of one rank as torch's profiler saw them, and as the timeline saw the timed ones."""

    rank: int
    profile: Shares
    timeline: Shares | None
    """None where the rank has no timed step."""
    operators: dict[str, float]
    """Seconds per step of each operator, and outside of all (operators.py); empty on a GPU, whose kernels are later."""


@dataclass(frozen=True)
class CellProfile:
    """The profile of a cell."""

    ranks: tuple[RankProfile, ...]
    problems: tuple[str, ...]
    """Why a trace could not be read."""


def shares(trace: Trace) -> Shares:
    """Compute and communication in the steps of one trace. Raises OutputError if no step is marked in it.

    On a CPU a rank computes while an operator runs on one of its threads; on a GPU while a kernel does that is not
    nccl's. While a *blocking* message is on its way it computes nothing (method.md §3). Communication is the union of
    the messages of our own timeline and of what the backend says of itself: its kernels, or its ranges. So a message
    that escaped the timeline is seen here.
    """
    marks = [event for event in trace.events if event.phase == "X" and event.name.startswith(STEP_MARK)]
    steps = union(_span(event) for event in marks if event.category != "gpu_user_annotation")
    count = len({event.name for event in marks})
    kernels = [event for event in trace.events if event.category in KERNELS]
    if kernels and steps:
        # A GPU runs behind its host: only the steps as a whole have a start and an end that both know.
        steps = [(steps[0][0], max(steps[-1][1], *(event.end_ns for event in kernels)))]
    whole = length(steps)
    if not whole:
        raise OutputError(f"no step is marked in the trace: it has no event {STEP_MARK}N")
    messages = [event for event in trace.events if event.category == COLLECTIVE]
    said = [event for event in trace.events if _of_backend(event, on_gpu=bool(kernels))]
    communication = intersection(union(map(_span, [*messages, *said])), steps)
    held = union(_span(event) for event in messages if event.args.get("blocking") is True)
    work = (
        union(map(_span, (k for k in kernels if not _of_backend(k, on_gpu=True))))
        if kernels
        else _operators(trace.events)
    )
    compute = intersection(difference(work, held), steps)
    return Shares(
        step_s=whole / count / 1e9,
        compute=length(compute) / whole,
        communication=length(communication) / whole,
        overlapped=length(intersection(compute, communication)) / whole,
    )


def operators(trace: Trace) -> dict[str, float]:
    """What its operators take on the threads that train (operators.py); empty on a GPU, where they only enqueue."""
    events = trace.events
    if any(event.category in KERNELS for event in events):
        return {}
    messages = union(_span(event) for event in events if event.category == COLLECTIVE)
    steps = len({each.name for each in events if each.phase == "X" and each.name.startswith(STEP_MARK)})
    return operator_times(events, _of_training(events), messages, steps) if steps else {}


def _span(event: TraceEvent) -> tuple[int, int]:
    return event.start_ns, event.end_ns


def _of_backend(event: TraceEvent, *, on_gpu: bool) -> bool:
    if event.phase != "X" or not event.name.lower().startswith(BACKENDS):
        return False
    return event.category in KERNELS if on_gpu else event.category != COLLECTIVE


def _operators(events: Sequence[TraceEvent]) -> Intervals:
    """When operators run on threads that are not the backend's, but for handing over messages.

    That happens inside other operators, in the hooks of gradients, and lasts where the backend takes the core.
    """
    running: dict[object, list[TraceEvent]] = {}
    for event in _of_training(events):
        running.setdefault(event.thread, []).append(event)
    return union(span for mine in running.values() for span in _computing(mine))


def _of_training(events: Sequence[TraceEvent]) -> list[TraceEvent]:
    """The operators of all threads but those of the backend."""
    training = {event.thread for event in events if event.name.startswith(STEP_MARK)}
    carrying = {event.thread for event in events if _of_backend(event, on_gpu=False)} - training
    return [event for event in events if event.category == "cpu_op" and event.thread not in carrying]


def _computing(operators: Sequence[TraceEvent]) -> Intervals:
    """Operators of one thread without those that only hand over a message."""
    handing = [event for event in operators if event.name.startswith(OPERATORS_OF_COLLECTIVES)]
    return difference(union(map(_span, operators)), union(map(_span, handing)))


def timeline_shares(cell: Cell) -> dict[int, Shares]:
    """The same of the timed steps, by rank, from the timeline (method.md §2)."""
    columns = ("step_s", *COMPUTE_PARTS, "comm_s", "overlapped_s")
    timed = with_parts(cell).filter("timed")
    means = cell.collect(timed.group_by("rank").agg(pl.col(*columns).mean()))
    return {
        row["rank"]: Shares(
            step_s=row["step_s"],
            compute=sum(row[part] for part in COMPUTE_PARTS) / row["step_s"],
            communication=row["comm_s"] / row["step_s"],
            overlapped=row["overlapped_s"] / row["step_s"],
        )
        for row in means.iter_rows(named=True)
        if row["step_s"] > 0
    }


def profile_of(cell: Cell) -> CellProfile | None:
    """The profile of a cell; None where none was made. What cannot be read is told, and the rest is used."""
    try:
        record = read_profile(cell.folder)
    except OutputError as error:
        return CellProfile((), (str(error),))
    if record is None:
        return None
    timeline = timeline_shares(cell)
    found, problems = [], []
    if len(record.ranks) > MAX_RANKS:
        problems.append(f"the traces of all but {MAX_RANKS} of {len(record.ranks)} ranks are left out of the report")
    for rank in (each.rank for each in record.ranks[:MAX_RANKS]):
        try:
            trace = read_trace(rank_trace(cell.folder, rank))
            seen = shares(trace)
        except OutputError as error:
            problems.append(f"the trace of rank {rank} is left out: {error}")
            continue
        found.append(RankProfile(rank, seen, timeline.get(rank), operators(trace)))
    return CellProfile(tuple(found), tuple(problems))
