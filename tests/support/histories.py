"""Reads a history back: from the run folder, and from what each client wrote, with the client's own readers.

All give the numbers of one run as {step: {name: value}}.
"""

import json
import struct
from pathlib import Path
from typing import Any

import polars as pl

from worldsize.results.folder import Cell

Numbers = dict[int, dict[str, float]]

BLOCK_BYTES = 32768
HEADER_BYTES = 7
LAST_PARTS = (1, 4)
"""A record that is whole in its block, and the last part of one that is not."""


def stored(cell: Cell) -> Numbers:
    """The steps of a cell in its first session, of ranks with one clock; each evaluation at the step before it."""
    steps = (
        cell.steps.filter(pl.col("session") == 0)
        .group_by("step")
        .agg(
            pl.col("epoch", "timed").first(),
            pl.col("block").first(),
            pl.col("start_ns").max().alias("begin_ns"),
            (pl.col("start_ns") + 1e9 * pl.col("step_s")).max().alias("end_ns"),
            *((pl.col(name) * pl.col("samples")).sum() / pl.col("samples").sum() for name in ("loss", "accuracy")),
        )
        .sort("step")
    )
    batch = cell.record.global_batch
    found: Numbers = {}
    ends_ns: dict[int, float] = {}
    for row in steps.iter_rows(named=True):
        block, step = row.pop("block"), row.pop("step")
        begun_ns = row.pop("begin_ns")
        begin_ns = ends_ns.get(block, begun_ns)  # a step follows the one before it in its turn
        ends_ns[block] = row.pop("end_ns")
        row["step_s"] = (ends_ns[block] - begin_ns) / 1e9
        row["samples_per_s"] = batch / row["step_s"]
        found[step] = {name: float(value) for name, value in row.items() if value is not None}
    for evaluation in cell.record.evaluations:
        assert evaluation.test_loss is not None
        found[evaluation.step - 1] |= {"test_loss": evaluation.test_loss, "test_accuracy": evaluation.test_accuracy}
    return found


def wandb_records(run: Path) -> dict[str, list[Any]]:
    """The records of each offline run by its name, as W&B's own messages.

    Its files are LevelDB's log format after a header of seven bytes; its package reads them only to send them.
    """
    from wandb.proto import wandb_internal_pb2

    kind: Any = vars(wandb_internal_pb2)["Record"]  # made when it is imported
    found = {}
    for file in run.glob("wandb/offline-run-*/run-*.wandb"):
        records = [kind.FromString(content) for content in _log_records(file.read_bytes())]
        [name] = {record.run.display_name for record in records if record.HasField("run")}
        assert name not in found
        found[name] = records
    return found


def wandb_numbers(records: list[Any]) -> Numbers:
    found: Numbers = {}
    for record in records:
        if record.HasField("history"):
            row = {_name(item): json.loads(item.value_json) for item in record.history.item}
            step = row["_step"]
            assert step not in found
            found[step] = {name: value for name, value in row.items() if not name.startswith("_")}
    return found


def wandb_summary(records: list[Any]) -> dict[str, Any]:
    updates = [item for record in records if record.HasField("summary") for item in record.summary.update]
    return {_name(item): json.loads(item.value_json) for item in updates}


def wandb_config(records: list[Any]) -> dict[str, Any]:
    [run] = [record.run for record in records if record.HasField("run")]
    return {item.key: json.loads(item.value_json) for item in run.config.update}


def _name(item: Any) -> str:
    return str(item.key or "/".join(item.nested_key))


def _log_records(content: bytes) -> list[bytes]:
    assert content.startswith(b":W&B")
    at, parts, whole = HEADER_BYTES, b"", []
    while at < len(content):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", content[at : at + HEADER_BYTES])
        at += HEADER_BYTES
        parts, at = parts + content[at : at + length], at + length
        if kind in LAST_PARTS:
            whole.append(parts)
            parts = b""
    return whole


def tensorboard_numbers(run: Path, name: str) -> tuple[Numbers, dict[str, float], dict[str, str]]:
    """Scalars by step, the scalars of the summary, and the texts of one run."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard" / name), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    found: Numbers = {}
    summary = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            if tag.startswith("summary/"):
                summary[tag] = event.value
            else:
                assert tag not in found.setdefault(event.step, {})
                found[event.step][tag] = event.value
    texts = {tag: events.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in events.Tags()["tensors"]}
    return found, summary, texts


def mlflow_runs(run: Path, study: str) -> dict[str, tuple[Any, Numbers]]:
    """Each run of a study by its name: MLflow's own object, and its history."""
    from mlflow import MlflowClient

    import worldsize.trackers.mlflow  # noqa: F401 - which keeps MLflow from reporting its use

    client = MlflowClient(tracking_uri=f"sqlite:///{run.absolute() / 'mlruns' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(study)
    assert experiment is not None
    found = {}
    for each in client.search_runs([experiment.experiment_id]):
        numbers: Numbers = {}
        for name in each.data.metrics:
            if not name.startswith("summary/"):
                for metric in client.get_metric_history(each.info.run_id, name):
                    assert name not in numbers.setdefault(metric.step, {})
                    numbers[metric.step][name] = metric.value
        found[each.info.run_name] = each, numbers
    return found
