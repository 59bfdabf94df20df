"""Mirrors of a study's history in other programs' clients: `--log wandb,tensorboard,mlflow`.

The run folder is the history; what is here copies it, between turns, and may fail without harm. `CLIENTS` maps the
names of `--log` to the module of a client; its packages are optional and imported when they are asked for.
"""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

from worldsize.errors import UsageError
from worldsize.history.client import Client, Row, Series
from worldsize.history.mirror import Mirror
from worldsize.history.rows import Rows, summary_values

CLIENTS = {
    "wandb": "worldsize.history.wandb:WandbMirror",
    "tensorboard": "worldsize.history.tensorboard:TensorboardMirror",
    "mlflow": "worldsize.history.mlflow:MlflowMirror",
}
PACKAGES = {"wandb": ("wandb",), "tensorboard": ("tensorboard",), "mlflow": ("mlflow", "sqlalchemy", "alembic")}
"""What each needs, as imported; the extra of the same name brings all of it."""


def check_clients(names: Sequence[str]) -> None:
    """Raise UsageError, before anything is started, for a name that is unknown or whose package is missing."""
    for name in names:
        if name not in CLIENTS:
            raise UsageError(f"unknown name {name!r} for --log; known: {', '.join(CLIENTS)}")
        for package in PACKAGES[name]:
            if not _installed(package):
                raise UsageError(f"--log {name} needs the package {package}: pip install 'worldsize[{name}]'")


def open_mirrors(names: Sequence[str], run: Path, study: str) -> list[Mirror]:
    """One mirror for each name; a client that cannot be opened is a mirror that is off, with its trouble."""
    return [Mirror(name, partial(_opened, name, run, study)) for name in dict.fromkeys(names)]


def _installed(package: str) -> bool:
    # A folder of the same name, such as the one that W&B makes where it is called, would do as an empty package.
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def _opened(name: str, run: Path, study: str) -> Client:
    module, _, kind = CLIENTS[name].partition(":")
    return cast(Client, getattr(import_module(module), kind)(run, study))


__all__ = ["CLIENTS", "Client", "Mirror", "Row", "Rows", "Series", "check_clients", "open_mirrors", "summary_values"]
