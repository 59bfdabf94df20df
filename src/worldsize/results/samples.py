"""The samples that the ranks of a cell wrote, a line per step, as columns."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from worldsize.config import MOST_WORKERS
from worldsize.errors import OutputError
from worldsize.results.files import own
from worldsize.results.records import SpanRecord
from worldsize.results.schema_1 import TakenApartStep

Schema = Mapping[str, pl.DataType | type[pl.DataType]]

_POLARS_TYPES: dict[Any, type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    bool: pl.Boolean,
}
STEP_SCHEMA: Schema = {name: _POLARS_TYPES[field.annotation] for name, field in TakenApartStep.model_fields.items()}
SPAN_SCHEMA: Schema = {
    "session": pl.Int64,
    "step": pl.Int64,
    "kind": pl.List(pl.String),
    "payload_bytes": pl.List(pl.Int64),
    "blocking": pl.List(pl.Boolean),
    "ready_s": pl.List(pl.Float64),
    "issued_s": pl.List(pl.Float64),
    "done_s": pl.List(pl.Float64),
}
assert SPAN_SCHEMA.keys() == SpanRecord.model_fields.keys()

BLOCK_BYTES = 2**26
"""Bytes of a file that are read at a time."""
CHUNK_ROWS = 2**17
"""Rows that are gathered before they are handed on."""


@dataclass(frozen=True)
class Kind:
    """A kind of samples: steps, or spans."""

    name: str
    suffix: str
    """A rank's file is rank<k> and this."""
    line: Schema

    @property
    def schema(self) -> Schema:
        """The columns: those of a line, after the rank."""
        return {"rank": pl.Int64, **self.line}

    def files(self, folder: Path) -> dict[int, Path]:
        """The files of a cell's ranks, in the order of the ranks; raise OutputError for a rank that cannot be."""
        found = {path.name[len("rank") : -len(self.suffix)]: path for path in folder.glob(f"rank*{self.suffix}")}
        ranks = [rank for rank in found if re.fullmatch("[0-9]+", rank)]
        for rank in ranks:
            if len(rank) > len(str(MOST_WORKERS)):
                raise OutputError(f"{found[rank]} is the file of no rank: there are at most {MOST_WORKERS:,} workers")
        return {int(rank): own(folder, found[rank].name) for rank in sorted(ranks, key=int)}


STEPS = Kind("steps", ".jsonl", STEP_SCHEMA)
SPANS = Kind("spans", ".spans.jsonl", SPAN_SCHEMA)
KINDS = (STEPS, SPANS)


def state(path: Path) -> os.stat_result:
    """Size and time of a file of lines; raise OutputError where the system tells neither."""
    try:
        return path.stat()
    except OSError as error:
        raise _unreadable(path, error) from None


def whole_lines(path: Path) -> bytes:
    """The complete lines of a JSONL file; a line that a crash cut short is left out."""
    return b"".join(_blocks(path))


def read_lines(kind: Kind, files: Mapping[int, Path]) -> Iterator[pl.DataFrame]:
    """The samples in some ranks' files, in the order of the ranks, CHUNK_ROWS or some more at a time.

    There is at least one frame. Raises OutputError for lines that are no records.
    """
    gathered, rows = [pl.DataFrame(schema=kind.schema)], 0
    for rank, path in files.items():
        for lines in _blocks(path):
            gathered.append(_frame(kind, rank, path, lines))
            rows += gathered[-1].height
            if rows >= CHUNK_ROWS:
                yield pl.concat(gathered)
                gathered, rows = gathered[:1], 0
    yield pl.concat(gathered)


def each_once(samples: pl.LazyFrame, order: pl.DataFrame) -> pl.LazyFrame:
    """The newest record of each step: a later session went on at its first one, and superseded what followed there.

    `order` holds rank, session and step of the samples, which are in the order of rank, then of time.
    """
    begins = dict(order.group_by("session").agg(pl.col("step").min()).iter_rows())
    ends = {session: min((begins[later] for later in begins if later > session), default=None) for session in begins}
    superseded = [
        (pl.col("session") == session) & (pl.col("step") >= end) for session, end in ends.items() if end is not None
    ]
    if superseded:
        kept = ~pl.any_horizontal(superseded)
        samples, order = samples.filter(kept), order.filter(kept)
    if not goes_back(order):
        return samples
    # Workers that were started again within a session have run some steps twice.
    return samples.unique(["rank", "session", "step"], keep="last", maintain_order=True)


def goes_back(order: pl.DataFrame) -> bool:
    """Whether a rank has run a step that it had behind it; without, its steps are sorted, and each is there once."""
    before = order.select("rank", "step").shift()
    return bool(((order["rank"] == before["rank"]) & (order["step"] <= before["step"])).any())


def _blocks(path: Path) -> Iterator[bytes]:
    """Whole lines, many at a time; a file may be larger than what fits into memory.

    Raises OutputError for a file that cannot be read; one that is not there holds none.
    """
    rest = b""
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                lines, _, rest = (rest + block).rpartition(b"\n")
                if lines:
                    yield lines + b"\n"
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> OutputError:
    return OutputError(f"cannot read {path}: {error.strerror}")


def _frame(kind: Kind, rank: int, path: Path, lines: bytes) -> pl.DataFrame:
    try:
        frame = pl.read_ndjson(lines, schema=kind.line)
    except pl.exceptions.PolarsError as error:
        told = str(error).partition("\n")[0][:300]
        raise OutputError(f"{path} holds lines that are not step records: {told}") from None
    return frame.select(pl.lit(rank, dtype=pl.Int64).alias("rank"), *kind.line)
