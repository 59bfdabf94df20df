"""In what a run differs from the experiment whose name it bears: what flags have made smaller is said."""

from typing import Any

from worldsize.config import StudySettings, preset_names, read_study, validated

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
        return "none"
    if isinstance(value, tuple | list):
        return ", ".join(str(each) for each in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
