"""The samples that the ranks of a cell wrote, a line per step, as columns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from worldsize.errors import OutputError
from worldsize.results.rank_files import SPAN_LINES, STEP_LINES, line_blocks, rank_files
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
        return rank_files(folder, self.suffix)


STEPS = Kind("steps", STEP_LINES, STEP_SCHEMA)
SPANS = Kind("spans", SPAN_LINES, SPAN_SCHEMA)
KINDS = (STEPS, SPANS)


def read_lines(kind: Kind, files: Mapping[int, Path]) -> Iterator[pl.DataFrame]:
    """The samples in some ranks' files, in the order of the ranks, CHUNK_ROWS or some more at a time.

    There is at least one frame. Raises OutputError for lines that are no records.
    """
    gathered, rows = [pl.DataFrame(schema=kind.schema)], 0
    for rank, path in files.items():
        for lines in line_blocks(path):
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


def _frame(kind: Kind, rank: int, path: Path, lines: bytes) -> pl.DataFrame:
    try:
        frame = pl.read_ndjson(lines, schema=kind.line)
    except pl.exceptions.PolarsError as error:
        told = str(error).partition("\n")[0][:300]
        raise OutputError(f"{path} holds lines that are not step records: {told}") from None
    return frame.select(pl.lit(rank, dtype=pl.Int64).alias("rank"), *kind.line)
