"""Weights & Biases: a run per cell, offline in RUN/wandb unless WANDB_MODE=online and there is a key."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Literal, cast
from uuid import uuid4

import wandb
from requests.utils import get_netrc_auth

from worldsize.trackers.tracker import Number, Row, Series, variables

Mode = Literal["online", "offline", "disabled"]
SERVER = "https://api.wandb.ai"
FINISH_S = 30.0
"""How long the end of a run may wait for its upload; what is left can be sent later by `wandb sync`."""


def mode() -> Mode:
    """`offline`, unless the user's WANDB_MODE says otherwise; `online` needs a key."""
    wanted = os.environ.get("WANDB_MODE", "offline")
    if wanted == "online" and not _has_key():
        return "offline"  # W&B would ask for a key on the terminal, amid a study
    return cast(Mode, wanted)


def _has_key() -> bool:
    """Whether W&B would find a key; it is not looked at."""
    known = any(os.environ.get(name) for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE"))
    return known or get_netrc_auth(os.environ.get("WANDB_BASE_URL", SERVER)) is not None


class WandbTracker:
    """One W&B run per series; those of all cells are open at once, as cells take turns."""

    def __init__(self, run: Path, study: str) -> None:
        self._run = run
        self._runs: dict[str, Any] = {}
        self._context = ExitStack()
        # What crashes in W&B would be reported to its makers, also in offline mode.
        self._context.enter_context(variables(WANDB_ERROR_REPORTING="false"))
        if not _in_use():
            self._context.callback(wandb.teardown)
        wandb.setup()

    def begin(self, series: Series) -> None:
        """Open a run; nothing of it looks at the machine, whose statistics would disturb what is timed."""
        self._runs[series.name] = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "worldsize"),
            group=os.environ.get("WANDB_RUN_GROUP", series.study),
            id=uuid4().hex[:8],
            name=series.name,
            dir=os.environ.get("WANDB_DIR", str(self._run)),
            config={**series.settings, "study": series.study, "session": series.session},
            reinit="create_new",
            settings=_settings(),
        )

    def log(self, series: Series, rows: Sequence[Row]) -> None:
        """One row of history per step; rows of the same step become one."""
        for row in rows:
            self._runs[series.name].log(dict(row.values), step=row.step)

    def end(self, series: Series, state: str, summary: Mapping[str, Number]) -> None:
        """The summary under `summary/`, and the state; an exit code of 1 marks what failed."""
        run = self._runs.pop(series.name)
        run.summary.update({"state": state, **{f"summary/{name}": value for name, value in summary.items()}})
        run.finish(exit_code=0 if state == "complete" else 1)

    def close(self) -> None:
        """End runs that are open, and W&B's process unless somebody else in this process had started it."""
        with self._context:
            while self._runs:
                with suppress(Exception):  # its process may be gone; the other runs are to be ended as well
                    self._runs.popitem()[1].finish(exit_code=1)


def _in_use() -> bool:
    """Whether this process has W&B running already, as a program that calls worldsize may."""
    state = getattr(wandb.sdk.wandb_setup, "_singleton", None)
    return state is not None and getattr(state, "_connection", None) is not None


def _settings() -> wandb.Settings:
    return wandb.Settings(
        mode=mode(),
        console="off",
        silent=True,
        symlink=False,
        finish_timeout=FINISH_S,
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
