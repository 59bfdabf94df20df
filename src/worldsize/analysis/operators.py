"""What takes the time in a trace, operator by operator, and by how much one trace has more of it than others.

The advice says it, so that a person need not look at the trace (docs/profiles.md).
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from worldsize.analysis.intervals import Intervals, difference, length, union
from worldsize.results.traces import STEP_MARK, TraceEvent

OUTSIDE = ""
"""The name of the time in which the training thread runs no operator, and no message is on its way."""
MOSTLY = 0.5
"""Share of some time that one operator must have to be named."""
NAMED = 3


@dataclass(frozen=True)
class Longest:
    """Operators and their seconds per step, the longest first; of a trace, or what it has more of than others."""

    seconds: tuple[tuple[str, float], ...]

    @property
    def text(self) -> str:
        """`aten::mm (12.1 ms), aten::add_ (2.0 ms)`; what lies outside of operators is called so."""
        return ", ".join(f"{name or 'time outside of any operator'} ({1e3 * s:.3g} ms)" for name, s in self.seconds)

    @property
    def outside(self) -> bool:
        """Whether most of it is no operator: Python, a sleep, or waiting."""
        return self.seconds[0][0] == OUTSIDE


def operator_times(
    events: Sequence[TraceEvent], operators: Iterable[TraceEvent], messages: Intervals, steps: int
) -> dict[str, float]:
    """Seconds per step that each operator takes without those that it calls, and OUTSIDE.

    `operators` are those of the threads that train; `messages` when some message is on its way.
    """
    marks = [event for event in events if event.phase == "X" and event.name.startswith(STEP_MARK)]
    inside = union((event.start_ns, event.end_ns) for event in marks if event.category != "gpu_user_annotation")
    training = {event.thread for event in marks}
    found: dict[str, float] = defaultdict(float)
    by_thread: dict[object, list[TraceEvent]] = defaultdict(list)
    for event in operators:
        by_thread[event.thread].append(event)
    for mine in by_thread.values():
        for name, own_ns in _own_times(mine, inside):
            found[name] += own_ns / steps / 1e9
    running = union((each.start_ns, each.end_ns) for thread in training for each in by_thread.get(thread, ()))
    found[OUTSIDE] = length(difference(difference(inside, running), messages)) / steps / 1e9
    return dict(found)


def _own_times(operators: Sequence[TraceEvent], inside: Intervals) -> Iterable[tuple[str, int]]:
    """Of each operator of one thread, how long it ran within the steps without what it called (ns)."""
    if not inside:
        return
    first, last = inside[0][0], inside[-1][1]
    calling: list[list[int]] = []  # number and end of each operator that has not ended, innermost last
    ordered = sorted((e for e in operators if first <= e.start_ns < last), key=lambda e: (e.start_ns, -e.end_ns))
    own_ns = [event.end_ns - event.start_ns for event in ordered]
    for number, event in enumerate(ordered):
        while calling and calling[-1][1] <= event.start_ns:
            calling.pop()
        if calling:
            own_ns[calling[-1][0]] -= min(event.end_ns, calling[-1][1]) - event.start_ns
        calling.append([number, event.end_ns])
    for event, own in zip(ordered, own_ns, strict=True):
        yield event.name, max(0, own)


def more_in_trace(own: Mapping[str, float], others: Sequence[Mapping[str, float]], more_s: float) -> Longest | None:
    """The operators that have most of `more_s` seconds per step, in one trace against the median of others.

    None where even the first NAMED of them do not make up most of it.
    """
    if not others:
        return None
    excess = {name: seconds - median(each.get(name, 0.0) for each in others) for name, seconds in own.items()}
    return _first(excess, more_s)


def largest(times: Mapping[str, float]) -> Longest | None:
    """The operators that take most of the time of all of them; None where even the first NAMED do not."""
    running = {name: seconds for name, seconds in times.items() if name != OUTSIDE}
    return _first(running, sum(running.values())) if running else None


def _first(times: Mapping[str, float], whole_s: float) -> Longest | None:
    """As many of the longest, up to NAMED, as make up most of some time."""
    ordered = sorted(((name, s) for name, s in times.items() if s > 0), key=lambda pair: -pair[1])
    for count in range(1, min(NAMED, len(ordered)) + 1):
        if sum(seconds for _, seconds in ordered[:count]) > MOSTLY * whole_s:
            return Longest(tuple(ordered[:count]))
    return None
