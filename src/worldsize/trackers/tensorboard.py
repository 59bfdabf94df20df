"""TensorBoard: event files in RUN/tensorboard/<cell>, written by the package's own record writer."""

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.summary.writer.record_writer import RecordWriter

from worldsize.trackers.tracker import Number, Row, Series


class TensorboardTracker:
    """One event file per series.

    It writes without a thread of its own (as the writer that torch uses has), so an error comes where it is made.
    """

    def __init__(self, run: Path, study: str) -> None:
        self._folder = run / "tensorboard"
        self._writers: dict[str, RecordWriter] = {}
        self._steps: dict[str, int] = {}

    def begin(self, series: Series) -> None:
        """Make the file, with the settings as its first text."""
        folder = self._folder / series.name
        folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        file = folder / f"events.out.tfevents.{now:.0f}.{socket.gethostname()}.{os.getpid()}"
        self._writers[series.name] = RecordWriter(file.open("wb"))
        self._write(series, Event(wall_time=now, file_version="brain.Event:2"))
        self._write(series, _event(0, [_text("settings", json.dumps(dict(series.settings), indent=2))]))
        self._writers[series.name].flush()

    def log(self, series: Series, rows: Sequence[Row]) -> None:
        """One event per row, with a scalar for each of its numbers."""
        for row in rows:
            self._write(series, _event(row.step, _scalars(row.values)))
            self._steps[series.name] = row.step
        self._writers[series.name].flush()

    def end(self, series: Series, state: str, summary: Mapping[str, Number]) -> None:
        """The summary as scalars under `summary/` at the last step."""
        named = {f"summary/{name}": value for name, value in summary.items()}
        self._write(series, _event(self._steps.get(series.name, 0), [*_scalars(named), _text("state", state)]))
        self._writers.pop(series.name).close()

    def close(self) -> None:
        """Close the files of series that have not ended."""
        while self._writers:
            self._writers.popitem()[1].close()

    def _write(self, series: Series, event: Event) -> None:
        self._writers[series.name].write(event.SerializeToString())


def _event(step: int, values: Sequence[Summary.Value]) -> Event:
    return Event(wall_time=time.time(), step=step, summary=Summary(value=values))


def _scalars(values: Mapping[str, Number]) -> list[Summary.Value]:
    return [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]


def _text(tag: str, text: str) -> Summary.Value:
    """A text as TensorBoard's text plugin reads it; Markdown shows it as code."""
    data = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    content = f"```\n{text}\n```".encode()
    tensor = TensorProto(
        dtype="DT_STRING",
        string_val=[content],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    return Summary.Value(tag=tag, metadata=data, tensor=tensor)
