"""What the collective benchmark times, and how long it may take."""

import math
import time
from collections.abc import Callable

from worldsize.analysis.collective_cost import ENDING_S, least_s, roomy_budget, timed_sizes
from worldsize.analysis.numbers import number_text
from worldsize.config import CommSettings
from worldsize.errors import UsageError
from worldsize.study.sampling import Case

AFTER_S = 0.5
"""What the tables take after the last sample, by which the benchmark must have ended."""
MIN_SHARE = 0.4
"""Of a budget, that is left to time in, however long the workers took to start."""


def cases(settings: CommSettings) -> list[Case]:
    """Each collective at each size."""
    return [Case(*each) for each in timed_sizes(settings)]


def check_budget(settings: CommSettings) -> None:
    """Raise UsageError if one call of each size cannot end within the budget, as far as the links are known."""
    least = least_s(settings)
    if settings.budget_s is not None and settings.budget_s < least:
        given = settings.budget or f"{settings.budget_s:g}s"
        raise UsageError(
            f"budget: {given!r} was given; the start and one call of each size take {number_text(least)} s or more\n"
            f"Give --budget {roomy_budget(settings)}, a smaller --top or fewer --collectives."
        )


def within(settings: CommSettings, begun_s: float) -> CommSettings:
    """The settings with what is left of a budget that began with the command, at `begun_s` of `time.monotonic`.

    The time of the process that prints the tables, about AFTER_S, is taken off as well.
    """
    if settings.budget_s is None:
        return settings
    left_s = max(MIN_SHARE * settings.budget_s, settings.budget_s - AFTER_S - (time.monotonic() - begun_s))
    return settings.model_copy(update={"budget": f"{left_s:.2f}s"})


def countdown(budget_s: float | None, begun_s: float) -> Callable[[], float]:
    """The seconds that are left to time in, from now on, of a budget that began then (`time.monotonic`)."""
    if budget_s is None:
        return lambda: math.inf
    end_s = max(begun_s + budget_s - ENDING_S, time.monotonic() + MIN_SHARE * budget_s)
    return lambda: end_s - time.monotonic()
