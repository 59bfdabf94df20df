"""A budget of time for a whole command: what of it is for steps, and whether it is enough to begin."""

import time
from collections.abc import Sequence
from math import ceil
from typing import Any

import psutil

from worldsize.config import DEFAULT_BUDGET, SWEEP_STEPS, StudySettings
from worldsize.errors import UsageError
from worldsize.results.records import Findings
from worldsize.study.plan import PlannedCell

REPORT_S = 3.0
"""What the report takes: 1.7 s for seven cells on the machine on which it was measured."""
LAUNCH_S = 0.4
"""What the launch of a cell takes at least, measured for a model of a few thousand weights."""


def with_default_protocol(settings: StudySettings) -> StudySettings:
    """The same settings, with a budget where nothing says how much is measured; a sweep has a cap on steps instead."""
    if settings.epochs is not None or settings.steps is not None or settings.budget is not None:
        return settings
    default: dict[str, Any] = {"steps": SWEEP_STEPS} if settings.sweep else {"budget": DEFAULT_BUDGET}
    return settings.model_copy(update=default)


def began_s() -> float:
    """When this process began, on time.monotonic()."""
    return time.monotonic() - (time.time() - float(psutil.Process().create_time()))


def until_s(settings: StudySettings, began_s: float, used_s: float = 0.0) -> float | None:
    """When the last step must have ended, on the clock of `began_s`; None without a budget.

    `used_s` of the budget were used before (study/resuming.py).
    """
    return None if settings.budget_s is None else began_s + settings.budget_s - used_s - REPORT_S


def check_budget(
    settings: StudySettings, plan: Sequence[PlannedCell], findings: Findings, passed_s: float, used_s: float = 0.0
) -> None:
    """Raise UsageError for a budget that is too small for one step of each cell; nothing has been run yet.

    The time of a step is that of its floating-point operations at the rate of a matrix multiplication (method.md §12),
    which is less than it will be.
    """
    if settings.budget_s is None:
        return
    needed_s = passed_s + REPORT_S + sum(LAUNCH_S + _step_s(cell, findings) for cell in plan)
    if settings.budget_s - used_s < needed_s:
        already = f", of which {ceil(used_s)} s are used" if used_s else ""
        fewer = "" if used_s else ", or fewer cells"
        raise UsageError(
            f"a budget of {settings.budget} was given{already}; launching {len(plan)} cell(s) and one step of each "
            f"take about {ceil(needed_s)} s\nGive --budget {ceil(used_s + 2 * needed_s)}s or more{fewer}."
        )


def _step_s(cell: PlannedCell, findings: Findings) -> float:
    """A step of a cell, at the least: warmed up once, and timed once."""
    flops = findings.model.flops_per_sample if findings.model else None
    rate = findings.matmul_flops_per_s
    if not flops or not rate:
        return 0.0
    workers = cell.settings.world_size / cell.placement.processes
    return 2 * flops * cell.settings.batch_size * cell.settings.accumulate * workers / rate
