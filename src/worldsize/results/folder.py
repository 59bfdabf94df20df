"""The run folder: writing records so that a crash loses nothing, and reading them back.

study.json                 plan, settings, provenance
comm/w<N>.json             the collective benchmark that the study ran first, raw
cells/<cell>/cell.json     state and summary; written whole or not at all
cells/<cell>/rank<k>.jsonl        one line per step, appended as it happens
cells/<cell>/rank<k>.spans.jsonl  the collectives of each step
cells/<cell>/profile/             traces of a few steps after the timed ones, with --profile (results/traces.py)
parts/<part>/              further parts of an experiment, each such a folder
cells/<cell>/checkpoint/          what a training goes on from (checkpoints.py)
report/                    what `worldsize report` makes
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import polars as pl
from pydantic import ValidationError

from worldsize.errors import OutputError
from worldsize.results.comm_records import CommRecord
from worldsize.results.records import (
    SCHEMA_VERSION,
    CellRecord,
    Record,
    SpanRecord,
    StepRecord,
    StudyRecord,
)

R = TypeVar("R", bound=Record)

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

_POLARS_TYPES: dict[Any, type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    bool: pl.Boolean,
}
STEP_SCHEMA: Schema = {name: _POLARS_TYPES[field.annotation] for name, field in StepRecord.model_fields.items()}
SPAN_SCHEMA: Schema = {
    "session": pl.Int64,
    "step": pl.Int64,
    "kind": pl.List(pl.String),
    "payload_bytes": pl.List(pl.Int64),
    "issued_s": pl.List(pl.Float64),
    "done_s": pl.List(pl.Float64),
}
assert SPAN_SCHEMA.keys() == SpanRecord.model_fields.keys()


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part.

    Raises OutputError if the folder cannot be written.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with scratch.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):  # where the folder cannot be written, there is nothing to remove
            scratch.unlink()
        raise OutputError(
            f"cannot write {path}: {error.strerror}\nGive a folder you may write to with --out."
        ) from None


def read_record(kind: type[R], path: Path) -> R:
    """Read one JSON record; raise OutputError if it is missing, of a newer worldsize, or not of that kind."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise OutputError(f"{path} is missing: {path.parent} is not a worldsize run folder") from None
    except OSError as error:
        raise OutputError(f"cannot read {path}: {error.strerror}") from None
    _refuse_newer(path, content)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        told = f"{where}: {first['msg']}" if where else first["msg"]
        raise OutputError(f"{path} is not a valid {kind.__name__}: {told}") from None


def _refuse_newer(path: Path, content: bytes) -> None:
    """A newer record would fail on its first unknown key, which tells the user nothing."""
    try:
        version = json.loads(content)["schema_version"]
    except (ValueError, LookupError, TypeError):
        return  # whatever it is, validation says so
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise OutputError(
            f"{path} has schema version {version}; this worldsize reads versions up to {SCHEMA_VERSION}\n"
            "Upgrade worldsize to read it."
        )


def whole_lines(path: Path) -> bytes:
    """The complete lines of a JSONL file; a line that a crash cut short is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]


class Cell:
    """One cell of a run folder: its record, and its samples as columns."""

    def __init__(self, folder: Path, record: CellRecord) -> None:
        self.folder = folder
        self.record = record

    @cached_property
    def _all_steps(self) -> pl.DataFrame:
        # A folder of an earlier version knows only synchronised steps, and clocks that need no alignment.
        return self._read("rank*.jsonl", STEP_SCHEMA).with_columns(
            pl.col("synchronised").fill_null(True), pl.col("clock_offset_ns", "clock_error_ns").fill_null(0)
        )

    @cached_property
    def steps(self) -> pl.DataFrame:
        """Step records of all ranks (STEP_SCHEMA and the column `rank`), in the order of rank, then of time.

        Each step of a training of epochs is there once, though --resume may have run it again.
        """
        steps = self._all_steps.filter("synchronised")
        return steps if self.record.settings.epochs is None else _each_once(steps)

    @cached_property
    def unsynchronised(self) -> pl.DataFrame:
        """Steps without exchange of gradients, which only serve as the other half of a pair (method.md §3)."""
        return self._all_steps.filter(~pl.col("synchronised"))

    @cached_property
    def spans(self) -> pl.DataFrame:
        """Span records of all ranks (SPAN_SCHEMA and the column `rank`), one row per step."""
        spans = self._read("rank*.spans.jsonl", SPAN_SCHEMA)
        return spans if self.record.settings.epochs is None else _each_once(spans)

    def _read(self, pattern: str, schema: Schema) -> pl.DataFrame:
        frames = [pl.DataFrame(schema={"rank": pl.Int64, **schema})]
        files = {path: path.name.removeprefix("rank").split(".")[0] for path in self.folder.glob(pattern)}
        wanted_dots = pattern.count(".")
        for path, rank in sorted(files.items(), key=lambda item: item[1].zfill(9)):
            if path.name.count(".") != wanted_dots or not rank.isdigit():
                continue
            lines = whole_lines(path)
            if not lines:
                continue
            try:
                frame = pl.read_ndjson(lines, schema=schema)
            except pl.exceptions.PolarsError as error:
                raise OutputError(f"{path} holds lines that are not step records: {error}") from None
            frames.append(frame.select(pl.lit(int(rank), dtype=pl.Int64).alias("rank"), *schema))
        return pl.concat(frames)


def _each_once(steps: pl.DataFrame) -> pl.DataFrame:
    """The newest record of each step: a later session went on at its first one, and superseded what followed there."""
    begins = dict(steps.group_by("session").agg(pl.col("step").min()).iter_rows())
    ends = {session: min((begins[later] for later in begins if later > session), default=None) for session in begins}
    superseded = [
        (pl.col("session") == session) & (pl.col("step") >= end) for session, end in ends.items() if end is not None
    ]
    kept = steps.filter(~pl.any_horizontal(superseded)) if superseded else steps
    # Workers that were started again within a session have also run some steps twice.
    return kept.unique(["rank", "session", "step"], keep="last", maintain_order=True)


class Run:
    """A run folder that was read: the study's record and its cells in the order of the plan."""

    def __init__(
        self, folder: Path, study: StudyRecord, cells: dict[str, Cell], comm: Mapping[int, CommRecord] | None = None
    ) -> None:
        self.folder = folder
        self.study = study
        self.cells = cells
        self.comm = dict(comm or {})
        """The collective benchmark that the study ran first, by world size."""
        self.parts: dict[str, Run] = {}
        """Further parts of an experiment, each a run folder in parts/."""


def new_run_folder(name: str) -> Path:
    """A folder under runs/ that nobody has used: the name and the time, which sort."""
    return Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"


def cell_folder(run: Path, cell_id: str) -> Path:
    """Folder of one cell; raise OutputError for an id that would leave the run folder."""
    path = run / "cells" / cell_id
    if path.parent != run / "cells" or cell_id in ("", ".", ".."):
        raise OutputError(f"{cell_id!r} is not the name of a cell")
    return path


def write_study(run: Path, record: StudyRecord) -> None:
    """Write study.json whole."""
    write_whole(run / "study.json", record.model_dump_json(indent=2) + "\n")


def write_cell(run: Path, record: CellRecord) -> None:
    """Write one cell.json whole."""
    write_whole(cell_folder(run, record.id) / "cell.json", record.model_dump_json(indent=2) + "\n")


def write_comm(run: Path, record: CommRecord) -> None:
    """Write the collective benchmark of one world size whole."""
    write_whole(run / "comm" / f"w{record.world_size}.json", record.model_dump_json() + "\n")


def append_line(file: int, record: Record) -> None:
    """Append one record as a line to an open file descriptor, in one write (kept after a kill −9)."""
    os.write(file, (json.dumps(record.model_dump(), separators=(",", ":")) + "\n").encode())


def load_run(path: Path | str) -> Run:
    """Read a run folder; a cell of the plan that was never started is not among its cells.

    Raises OutputError for a folder that is not a run folder or whose records are not valid.
    """
    folder = Path(path)
    study = read_record(StudyRecord, folder / "study.json")
    cells = {}
    for cell_id in study.plan:
        place = cell_folder(folder, cell_id)
        if (place / "cell.json").exists():
            cells[cell_id] = Cell(place, read_record(CellRecord, place / "cell.json"))
    comm = [read_record(CommRecord, path) for path in sorted((folder / "comm").glob("w*.json"))]
    run = Run(folder, study, cells, {record.world_size: record for record in comm})
    run.parts = {place.parent.name: load_run(place.parent) for place in sorted(folder.glob("parts/*/study.json"))}
    return run
