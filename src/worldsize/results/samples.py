"""The samples that the ranks of a cell wrote, a line per step, as columns; and which of them are whole.

What a crash, a full disk or a stranger has left in a line is kept out of every number.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import and_
from pathlib import Path
from typing import Any

import polars as pl

from worldsize.errors import OutputError
from worldsize.results.rank_files import SPAN_LINES, STEP_LINES, line_blocks, rank_files
from worldsize.results.records import STEP_PARTS
from worldsize.results.step_records import ENDS, PHASES, SpanRecord, StepRecord

MIN_S = 1e-9
"""No step is shorter than what a clock tells apart."""
MAX_S = 1e7
"""A step, or a time in it, is shorter: 116 days."""
MAX_NS = 2**61
"""Points on a clock are nearer to its start, so that the sum of two fits into 64 bits: 73 years."""
MAX_COUNT = 2**31
"""Sessions, blocks, steps, epochs and samples are fewer."""
MAX_MESSAGES = 2**16
"""Messages of one step are fewer."""
MAX_PAYLOAD_BYTES = 2**46
"""A message is smaller, so that those of a step add up within 64 bits."""
MAX_LOSS = 1e100
"""A loss beyond it is as good as not finite: sums of it would not be."""
ROUNDING_S = 1e-6
"""By so much a part of a step may be below 0."""


TAKEN_APART = (*STEP_PARTS, "comm_s", "overlapped_s")
"""What a line of schema 1 says of a step: the parts of method.md §2 and its communication, in seconds."""


class TakenApartStep(StepRecord):
    """A step of either schema: with marks, or, in schema 1, with its parts; such run folders can be read."""

    data_wait_s: float | None = None
    copy_s: float | None = None
    forward_s: float | None = None
    backward_s: float | None = None
    exposed_sync_s: float | None = None
    optimizer_s: float | None = None
    other_s: float | None = None
    comm_s: float | None = None
    overlapped_s: float | None = None


Schema = Mapping[str, pl.DataType | type[pl.DataType]]

_POLARS_TYPES: dict[Any, pl.DataType | type[pl.DataType]] = {
    int: pl.Int64,
    float: pl.Float64,
    float | None: pl.Float64,
    bool: pl.Boolean,
    list[str] | None: pl.List(pl.String),
    list[float] | None: pl.List(pl.Float64),
}
STEP_SCHEMA: Schema = {name: _POLARS_TYPES[field.annotation] for name, field in TakenApartStep.model_fields.items()}
SPAN_SCHEMA: Schema = {
    "session": pl.Int64,
    "step": pl.Int64,
    "kind": pl.List(pl.String),
    "payload_bytes": pl.List(pl.Int64),
    "blocking": pl.List(pl.Boolean),
    "ready_s": pl.List(pl.Float64),
    "awaited_s": pl.List(pl.Float64),
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
        reason = str(error).partition("\n")[0][:300]
        raise OutputError(f"{path} holds lines that are not step records: {reason}") from None
    return frame.select(pl.lit(rank, dtype=pl.Int64).alias("rank"), *kind.line)


def whole(kind: Kind) -> pl.Expr:
    """Whether a sample is a whole record with numbers that can be: true or false, never null."""
    conditions = _span_conditions() if kind is SPANS else _step_conditions()
    return reduce(and_, (condition.fill_null(False) for condition in conditions))


def _counts(*names: str) -> list[pl.Expr]:
    return [pl.col(name).is_between(0, MAX_COUNT) for name in names]


def _step_conditions() -> list[pl.Expr]:
    step_s = pl.col("step_s")
    least = -pl.max_horizontal(pl.lit(ROUNDING_S), step_s / 100)
    # A phase that was not marked ends where the one before it does.
    ends = [pl.coalesce(*ENDS[place::-1], pl.lit(0.0)) for place in range(len(ENDS))]
    return [
        *_counts("session", "block", "step", "epoch"),
        pl.col("launch").is_between(0, MAX_COUNT) | pl.col("launch").is_null(),
        pl.col("samples").is_between(1, MAX_COUNT),
        pl.col("timed").is_not_null(),
        pl.col("start_ns").is_between(-MAX_NS, MAX_NS),
        pl.col("clock_offset_ns").is_between(-MAX_NS, MAX_NS) | pl.col("clock_offset_ns").is_null(),
        pl.col("clock_error_ns").is_between(0, MAX_NS) | pl.col("clock_error_ns").is_null(),
        (step_s >= MIN_S) & (step_s < MAX_S),
        *(later >= earlier for earlier, later in pairwise([pl.lit(0.0), *ends, step_s + ROUNDING_S])),
        pl.col("last_gradient_s").is_between(-MAX_S, MAX_S) | pl.col("last_gradient_s").is_null(),
        pl.col("phases").is_null() | (_phase_conditions() & pl.all_horizontal(pl.col(ENDS).is_null())),
        *(((pl.col(name) >= least) & (pl.col(name) < MAX_S)) | pl.col(name).is_null() for name in TAKEN_APART),
        pl.all_horizontal(pl.col(TAKEN_APART).is_null())
        | (pl.all_horizontal(pl.col(TAKEN_APART).is_not_null()) & (pl.sum_horizontal(STEP_PARTS) > 0)),
    ]


def _phase_conditions() -> pl.Expr:
    """Of the stretches of a step: as many ends as names, in order, within the step."""
    names, ends = pl.col("phases").list, pl.col("phase_ends_s").list
    known = names.eval(pl.element().is_in([*PHASES])).list.all()
    ordered = (ends.len() < 2) | (ends.diff(null_behavior="drop").list.min() >= 0)
    within = (ends.min() >= 0) & (ends.max() <= pl.col("step_s") + ROUNDING_S)
    one_each = (names.len() > 0) & (names.len() == ends.len()) & (names.len() < MAX_MESSAGES)
    return one_each & known & ordered & within & ~ends.contains(None, nulls_equal=True)


def _span_conditions() -> list[pl.Expr]:
    """Of columns of lists, one entry each per message."""
    count = pl.col("kind").list.len()
    sizes, issued, done = (pl.col(name).list for name in ("payload_bytes", "issued_s", "done_s"))
    blocking = pl.col("blocking").list
    return [
        *_counts("session", "step"),
        count < MAX_MESSAGES,
        *(pl.col(name).list.len() == count for name in ("payload_bytes", "issued_s", "done_s")),
        *(
            ~pl.col(name).list.contains(None, nulls_equal=True)
            for name in ("kind", "payload_bytes", "issued_s", "done_s")
        ),
        pl.col("blocking").is_null() | ((blocking.len() == count) & ~blocking.contains(None, nulls_equal=True)),
        *(
            pl.col(name).is_null()
            | ((pl.col(name).list.len() == count) & (pl.col(name).list.max().fill_null(0.0).abs() < MAX_S))
            for name in ("ready_s", "awaited_s")
        ),
        (count == 0) | ((sizes.min() >= 0) & (sizes.max() < MAX_PAYLOAD_BYTES)),
        *((count == 0) | ((at.min() > -MAX_S) & (at.max() < MAX_S) & at.sum().is_finite()) for at in (issued, done)),
    ]


def readable(kind: Kind, samples: pl.LazyFrame) -> pl.LazyFrame:
    """The samples with defaults for what an earlier version did not write, and null for a loss that says nothing."""
    if kind is SPANS:
        return samples
    return samples.with_columns(
        pl.col("synchronised").fill_null(True),
        pl.col("launch", "clock_offset_ns", "clock_error_ns").fill_null(0),
        pl.when(pl.col("loss").abs() < MAX_LOSS).then("loss").alias("loss"),
        pl.when(pl.col("accuracy").is_between(0, 1)).then("accuracy").alias("accuracy"),
        pl.when(pl.col("reference_s").is_between(MIN_S, MAX_S)).then("reference_s").alias("reference_s"),
    )
