"""A budget of time for a whole command: what of it is for steps, and whether it is enough to begin."""

import time
from collections.abc import Sequence
from math import ceil
from typing import Any

import psutil

from worldsize.config import DEFAULT_BATCH_SIZE, DEFAULT_BUDGET, SWEEP_STEPS, StudySettings, TrainingSettings
from worldsize.errors import UsageError
from worldsize.results.records import Findings, WarningRecord
from worldsize.study.pace import Pace
from worldsize.study.plan import PlannedCell

REPORT_S = 3.0
"""What the report takes: 1.7 s for seven cells on the machine on which it was measured."""
LAUNCH_S = 0.4
"""What the launch of a cell takes at least, measured for a model of a few thousand weights."""
STEP_S = 0.4
"""A step that takes at most so long by the machine's matrix rate is made often enough in a budget of two minutes."""
OVER_BUDGET = "over-budget"
TOLERATED, TOLERATED_S = 0.1, 3.0
"""By how much a budget may be exceeded without a word: a share of it, and a round of steps."""


def with_default_protocol(settings: StudySettings) -> StudySettings:
    """The same settings, with a budget where nothing says how much is measured; a sweep has a cap on steps instead."""
    if settings.epochs is not None or settings.steps is not None or settings.budget is not None:
        return settings
    default: dict[str, Any] = {"steps": SWEEP_STEPS} if settings.sweep else {"budget": DEFAULT_BUDGET}
    return settings.model_copy(update=default)


def with_fitting_batch(
    settings: StudySettings, findings: Findings, sharing: int
) -> tuple[StudySettings, list[WarningRecord]]:
    """Choose a local batch where none is given and a budget says how long steps may be; the warning says why.

    `sharing` workers share the machine's matrix rate. At that rate a step may take STEP_S at most; the batch is the
    largest power of two that keeps to it, up to DEFAULT_BATCH_SIZE. Without flops or rate nothing is decided.
    """
    flops = findings.model.flops_per_sample if findings.model else None
    rate = findings.matmul_flops_per_s
    given = settings.batch_sizes or settings.global_batch or settings.cells or settings.sweep or settings.workload
    if given or settings.budget is None or not flops or not rate:
        return settings, []
    sample_s, batch = flops * sharing * settings.accumulate / rate, DEFAULT_BATCH_SIZE
    while batch > 1 and batch * sample_s > STEP_S:
        batch //= 2
    fitting = settings.model_copy(update={"batch_sizes": (batch,)})
    if batch == DEFAULT_BATCH_SIZE:
        return fitting, []
    text = (
        f"b = {batch}: with the usual {DEFAULT_BATCH_SIZE} a step would take at least "
        f"{DEFAULT_BATCH_SIZE * sample_s:.1f} s here, too long for a budget of {settings.budget}. "
        "--batch-sizes chooses another one."
    )
    return fitting, [WarningRecord(code="smaller-batch", message=text)]


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

    The usual one is exceeded instead, typed or not, with a warning: who gives none wants an answer, also of a busy
    machine.
    The time of a step is that of its floating-point operations at the rate of a matrix multiplication (method.md §12),
    or of its bytes over an emulated link: the longer of the two, which is less than it will be.
    """
    if settings.budget_s is None or (settings.budget == DEFAULT_BUDGET and not used_s):
        return
    needed_s = passed_s + REPORT_S + sum(LAUNCH_S + _step_s(cell, findings) for cell in plan)
    if settings.budget_s - used_s < needed_s:
        already = f", of which {ceil(used_s)} s are used," if used_s else ""
        fewer = "" if used_s else ", or fewer cells"
        raise UsageError(
            f"a budget of {settings.budget}{already} is too short: launching {len(plan)} cell(s) and one step of each "
            f"take about {ceil(needed_s)} s\nGive --budget {ceil(used_s + 2 * needed_s)}s or more{fewer}."
        )


def over_budget(settings: TrainingSettings, pace: Pace) -> list[WarningRecord]:
    """A warning where the steps of a study ended well after the time that was asked for: a user planned with it."""
    if settings.budget_s is None or pace.until_s is None:
        return []
    # What closing cells takes (an evaluation, a profile) is no matter of blocks.
    budget_s, late_s, cells = settings.budget_s, pace.round_ended_s - pace.until_s, len(pace.cells)
    if late_s <= max(TOLERATED_S, TOLERATED * budget_s):
        return []
    why, more = f"to start {cells} cells and time one block of each took that long", "Fewer cells take less time; "
    if cells == 1:
        why, more = "to start its cell and time one block took that long", ""
    if pace.rounds > 1:
        why = "its last round took longer than those before"
    text = (
        f"The study took about {late_s:.0f} s longer than the budget of {budget_s:g} s: {why}. "
        f"{more}--budget {ceil((budget_s + late_s) / 5) * 10}s gives time for more blocks."
    )
    return [WarningRecord(code=OVER_BUDGET, message=text)]


def _step_s(cell: PlannedCell, findings: Findings) -> float:
    """A step of a cell, at the least: warmed up once, and timed once."""
    return 2 * max(_computing_s(cell, findings), _sending_s(cell, findings))


def _computing_s(cell: PlannedCell, findings: Findings) -> float:
    flops = findings.model.flops_per_sample if findings.model else None
    rate = findings.matmul_flops_per_s
    if not flops or not rate:
        return 0.0
    workers = cell.settings.world_size / cell.placement.processes
    return flops * cell.settings.batch_size * cell.settings.accumulate * workers / rate


def _sending_s(cell: PlannedCell, findings: Findings) -> float:
    """The gradients of a lossless strategy over emulated links; 0 where it is not known how many bytes travel."""
    hosts, workers = cell.settings.emulated, cell.placement.processes
    rate = hosts.payload_bytes_per_s if hosts else None
    lossy = not cell.traits.exact or cell.traits.period
    sent_bytes = findings.model.gradient_bytes if findings.model else None
    if rate is None or not sent_bytes or workers == 1 or lossy or not cell.traits.collectives:
        return 0.0
    return least_sending_s(workers, sent_bytes, rate)


def least_sending_s(workers: int, sent_bytes: int, bytes_per_s: float) -> float:
    """What gradients of so many bytes take over the links of so many workers at the least: as a ring (method.md §4)."""
    return 2 * (workers - 1) / workers * sent_bytes / bytes_per_s
