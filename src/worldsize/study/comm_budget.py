"""What the collective benchmark times, and how long it may take."""

import math
import time
from collections.abc import Callable

from worldsize.analysis.collective_cost import bus_factor, steps
from worldsize.analysis.numbers import number_text
from worldsize.config import CommSettings
from worldsize.errors import UsageError
from worldsize.study.sampling import Case

START_S = 2.0
"""No job starts in less: each worker loads torch."""
TURN_S = 0.001
"""No sample takes less, with the way to the ranks and back."""
ENDING_S = 0.5
"""What of a budget goes into ending the workers and making the tables."""
LEAST_SHARE = 0.4
"""Of a budget, that is left to time in, however long the workers took to start."""


def sizes_up_to(top_bytes: int) -> list[int]:
    """Sizes from 1 KiB by fours, and the top itself."""
    sizes = [1024 * 4**k for k in range(20) if 1024 * 4**k < top_bytes]
    return [*sizes, top_bytes]


def cases(settings: CommSettings) -> list[Case]:
    """Each collective at each size."""
    sizes = sizes_up_to(settings.top_bytes)
    return [Case(name, size) for name in dict.fromkeys(settings.collectives) for size in sizes]


def check_budget(settings: CommSettings) -> None:
    """Raise UsageError if one call of each size cannot end within the budget, as far as the links are known."""
    least_s = _least_s(settings)
    if settings.budget_s is not None and settings.budget_s < least_s:
        given = settings.budget or f"{settings.budget_s:g}s"
        raise UsageError(
            f"budget: {given!r} was given; the start and one call of each size take {number_text(least_s)} s or more\n"
            f"Give --budget {math.ceil(2 * least_s)}s, a smaller --top or fewer --collectives."
        )


def _least_s(settings: CommSettings) -> float:
    """Start, turns, and the bytes of one call of each size over emulated links (method.md §5)."""
    hosts, n = settings.emulated, settings.world_size
    rate = None if hosts is None else hosts.payload_bytes_per_s
    delay_s = 0.0 if hosts is None or hosts.latency_s is None else hosts.latency_s
    least_s = START_S + ENDING_S
    for case in cases(settings):
        wire_s = 0.0 if rate is None else bus_factor(case.collective, n) * case.size_bytes / rate
        least_s += TURN_S + wire_s + steps(case.collective, n) * delay_s
    return least_s


def countdown(budget_s: float | None, begun_s: float) -> Callable[[], float]:
    """The seconds that are left to time in, from now on, of a budget that began then (`time.monotonic`)."""
    if budget_s is None:
        return lambda: math.inf
    end_s = max(begun_s + budget_s - ENDING_S, time.monotonic() + LEAST_SHARE * budget_s)
    return lambda: end_s - time.monotonic()
