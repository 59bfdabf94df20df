"""The four experiments by name: what each adds to its report, and in what a run differs from it.

What flags have made smaller is said.
"""

from collections.abc import Callable
from typing import Any

from worldsize.analysis.study import StudyAnalysis
from worldsize.config import StudySettings, preset_names, read_study, validated
from worldsize.report.experiments import batch_sweep, ddp_large_batch, dp_scaling, sync_ladder
from worldsize.report.section import Section

EXPERIMENTS: dict[str, Callable[[StudyAnalysis], Section]] = {
    "batch-sweep": batch_sweep.section,
    "dp-scaling": dp_scaling.section,
    "ddp-large-batch": ddp_large_batch.section,
    "sync-ladder": sync_ladder.section,
}
NO_DIFFERENCE = frozenset(
    (
        *("data_dir", "log", "profile", "checkpoint", "hosts", "backend", "loader_workers", "threads_per_worker"),
        *("cells", "hang_timeout", "max_restarts", "min_workers"),
    )
)
"""Settings that make an experiment neither smaller nor another one, or that depend on the machine."""


def deviations(settings: StudySettings) -> list[str]:
    """Each setting that is not as the experiment defines it, with the defined value in brackets."""
    if settings.experiment not in preset_names():
        return []
    defined = validated(StudySettings, read_study(settings.experiment))
    names = [name for name in StudySettings.model_fields if name not in NO_DIFFERENCE]
    return [
        f"{name.replace('_', ' ')} {_text(getattr(settings, name))} ({_text(getattr(defined, name))})"
        for name in names
        if getattr(settings, name) != getattr(defined, name)
    ]


def _text(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, tuple | list):
        return ", ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
