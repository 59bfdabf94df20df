"""Experiment trackers, one per file: `--log wandb,tensorboard,mlflow`.

The run folder is the history. What is here copies it between turns, and may fail without harm. `TRACKERS` maps the
names of `--log` to their modules; the packages they need are optional and imported when they are asked for.
"""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from worldsize.errors import UsageError
from worldsize.trackers.guarded import GuardedTracker
from worldsize.trackers.rows import Rows, summary_values
from worldsize.trackers.tracker import Row, Series, Tracker

TRACKERS = {
    "wandb": "worldsize.trackers.wandb:WandbTracker",
    "tensorboard": "worldsize.trackers.tensorboard:TensorboardTracker",
    "mlflow": "worldsize.trackers.mlflow:MlflowTracker",
}
PACKAGES = {"wandb": ("wandb",), "tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}
"""What each needs, as imported; the extra of the same name brings all of it."""


def check_trackers(names: Sequence[str]) -> None:
    """Raise UsageError, before anything is started, for a name that is unknown or whose package is missing."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(f"unknown name {name!r} for --log; known: {', '.join(TRACKERS)}")
        for package in PACKAGES[name]:
            if not _installed(package):
                raise UsageError(f"--log {name} needs the package {package}: pip install 'worldsize[{name}]'")


def open_trackers(names: Sequence[str], run: Path, study: str) -> list[GuardedTracker]:
    """A tracker for each name; one that cannot be opened is switched off, and says why."""
    return [GuardedTracker(name, partial(_opened, name, run, study)) for name in dict.fromkeys(names)]


def _installed(package: str) -> bool:
    # A folder of the same name, such as the one that W&B makes where it is called, would do as an empty package.
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def _opened(name: str, run: Path, study: str) -> Tracker:
    module, _, kind = TRACKERS[name].partition(":")
    return cast(Tracker, getattr(import_module(module), kind)(run, study))


__all__ = [
    "TRACKERS",
    "Tracker",
    "GuardedTracker",
    "Row",
    "Rows",
    "Series",
    "check_trackers",
    "open_trackers",
    "summary_values",
]
