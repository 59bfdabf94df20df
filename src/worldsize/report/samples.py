"""The raw samples of a run as two Parquet files, for pandas, Polars, R or DuckDB: the steps, and their messages."""

import io
from collections.abc import Iterator

import polars as pl

from worldsize.analysis.parts import with_parts
from worldsize.errors import OutputError
from worldsize.results.columns import BROKEN
from worldsize.results.folder import Cell, Run
from worldsize.results.samples import STEP_SCHEMA

MAX_MESSAGES = 1_000_000
"""Beyond them a report would take longer to write them than for all the rest; the run folder has them."""
_SAME_FOR_ALL = ("timed", "synchronised")
"""Every sample here is a timed step with synchronisation."""
CELL_SCHEMA: dict[str, type[pl.DataType]] = {
    "part": pl.String,
    "cell": pl.String,
    "strategy": pl.String,
    "world_size": pl.Int64,
    "local_batch": pl.Int64,
    "global_batch": pl.Int64,
    "rank": pl.Int64,
}
MESSAGE_SCHEMA: dict[str, type[pl.DataType]] = {
    "session": pl.Int64,
    "step": pl.Int64,
    "message": pl.Int64,
    "kind": pl.String,
    "payload_bytes": pl.Int64,
    "issued_s": pl.Float64,
    "done_s": pl.Float64,
}
_LISTS = ("kind", "payload_bytes", "issued_s", "done_s")
"""In a run folder each holds all messages of a step."""


def samples(run: Run) -> pl.LazyFrame:
    """All timed steps of all ranks and cells: which cell, then the fields of a StepRecord, in seconds and bytes.

    `part` is null but for the further parts of an experiment.
    """
    kept = [name for name in STEP_SCHEMA if name not in _SAME_FOR_ALL]
    schema = {**CELL_SCHEMA, **{name: STEP_SCHEMA[name] for name in kept}}
    found = (_of_cell(part, cell, _timed(cell)).select(*schema) for part, cell in _cells(run))
    return pl.concat([pl.LazyFrame(schema=schema), *found])


def messages(run: Run) -> pl.LazyFrame | None:
    """All messages of those steps, one row each, numbered within its step; times from the start of the step.

    None where there are more than MAX_MESSAGES.
    """
    if sum(map(_message_count, (cell for _, cell in _cells(run)))) > MAX_MESSAGES:
        return None
    schema = {**CELL_SCHEMA, **MESSAGE_SCHEMA}
    found = (_of_cell(part, cell, _messages(cell)).select(*schema) for part, cell in _cells(run))
    return pl.concat([pl.LazyFrame(schema=schema), *found])


def parquet(rows: pl.LazyFrame) -> bytes:
    """Rows as a Parquet file, without having them all at once. Raises OutputError where the samples are damaged."""
    file = io.BytesIO()
    try:
        rows.sink_parquet(file)
    except BROKEN as error:
        raise OutputError(f"cannot read the samples of the run: {str(error).splitlines()[0]}") from None
    return file.getvalue()


def _cells(run: Run) -> Iterator[tuple[str | None, Cell]]:
    yield from ((None, cell) for cell in run.cells.values())
    for name, part in run.parts.items():
        yield from ((name, cell) for cell in part.cells.values())


def _timed(cell: Cell) -> pl.LazyFrame:
    return with_parts(cell).filter("timed")


def _message_count(cell: Cell) -> int:
    return int(cell.collect(cell.scan_spans().select(pl.col("kind").list.len().sum())).item() or 0)


def _messages(cell: Cell) -> pl.LazyFrame:
    keys = ("rank", "session", "step")
    spans = cell.scan_spans().join(_timed(cell).select(keys), on=keys, how="semi", maintain_order="left")
    numbered = spans.with_columns(pl.int_ranges(pl.col("kind").list.len()).alias("message"))
    # A step without messages has empty lists, which become a row of nulls.
    return numbered.explode("message", *_LISTS).filter(pl.col("message").is_not_null())


def _of_cell(part: str | None, cell: Cell, frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with the columns that say which cell it is of."""
    record = cell.record
    return frame.with_columns(
        pl.lit(part, dtype=pl.String).alias("part"),
        pl.lit(record.id).alias("cell"),
        pl.lit(record.strategy).alias("strategy"),
        pl.lit(record.world_size, dtype=pl.Int64).alias("world_size"),
        pl.lit(record.batch_size, dtype=pl.Int64).alias("local_batch"),
        pl.lit(record.global_batch, dtype=pl.Int64).alias("global_batch"),
    )
