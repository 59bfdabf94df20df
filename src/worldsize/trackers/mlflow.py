"""MLflow: a run per cell in RUN/mlruns/mlflow.db, or wherever MLFLOW_TRACKING_URI says."""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from worldsize.trackers.tracker import Number, Row, Series, variables

QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "WARNING"}
"""Else MLflow reports its use to its makers, and tells on stderr of the tables that it makes."""
with variables(**QUIET):
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

BATCH = 1000
"""Most metrics that MLflow takes in one call."""
STATUS = {"complete": "FINISHED", "interrupted": "KILLED"}
"""State of a cell → status of its run; FAILED for any other."""


class MlflowTracker:
    """One MLflow run per series, in an experiment with the study's name.

    A local store is a database: the folder of files that older versions wrote is refused by new ones.
    """

    def __init__(self, run: Path, study: str) -> None:
        self._context = ExitStack()
        self._context.enter_context(variables(**QUIET))
        self._runs: dict[str, str] = {}
        address, artifacts = os.environ.get("MLFLOW_TRACKING_URI"), None
        if not address:
            folder = (run / "mlruns").absolute()
            folder.mkdir(parents=True, exist_ok=True)
            address, artifacts = f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()
        self._connection = MlflowClient(tracking_uri=address)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", study)
        found = self._connection.get_experiment_by_name(name)
        self._experiment = (
            found.experiment_id
            if found is not None
            else self._connection.create_experiment(name, artifact_location=artifacts)
        )

    def begin(self, series: Series) -> None:
        """Make a run, with the settings that are set as its parameters."""
        tags = {"study": series.study, "cell": series.cell, "session": str(series.session)}
        run_id = self._connection.create_run(self._experiment, run_name=series.name, tags=tags).info.run_id
        self._runs[series.name] = run_id
        params = [Param(name, str(value)) for name, value in series.settings.items() if value is not None]
        self._connection.log_batch(run_id, params=params, synchronous=True)

    def log(self, series: Series, rows: Sequence[Row]) -> None:
        """A metric for each number of each row."""
        self._write(series, [(name, value, row.step) for row in rows for name, value in row.values.items()])

    def end(self, series: Series, state: str, summary: Mapping[str, Number]) -> None:
        """The summary under `summary/`, the state as a tag and as the run's status."""
        self._write(series, [(f"summary/{name}", value, 0) for name, value in summary.items()])
        run_id = self._runs.pop(series.name)
        self._connection.log_batch(run_id, tags=[RunTag("state", state)], synchronous=True)
        self._connection.set_terminated(run_id, STATUS.get(state, "FAILED"))

    def close(self) -> None:
        """End runs that are open, and the connection to a database."""
        with self._context:
            while self._runs:
                with suppress(Exception):  # the database may be gone; the connection is to be ended as well
                    self._connection.set_terminated(self._runs.popitem()[1], "KILLED")
            store = getattr(getattr(self._connection, "_tracking_client", None), "store", None)
            getattr(store, "_dispose_engine", lambda: None)()

    def _write(self, series: Series, numbers: Sequence[tuple[str, Number, int]]) -> None:
        now = int(time.time() * 1000)
        metrics = [Metric(name, float(value), now, step) for name, value, step in numbers]
        run_id = self._runs[series.name]
        for begin in range(0, len(metrics), BATCH):
            self._connection.log_batch(run_id, metrics=metrics[begin : begin + BATCH], synchronous=True)
