"""Which samples are whole: what a crash, a full disk or a stranger has left in a line is kept out of every number."""

from functools import reduce
from itertools import pairwise
from operator import and_

import polars as pl

from worldsize.results.records import PARTS
from worldsize.results.samples import SPANS, Kind
from worldsize.results.schema_1 import TAKEN_APART
from worldsize.results.step_records import ENDS

LEAST_S = 1e-9
"""No step is shorter than what a clock tells apart."""
MOST_S = 1e7
"""A step, or a time in it, is shorter: 116 days."""
MOST_NS = 2**61
"""Points on a clock are nearer to its begin, so that the sum of two fits into 64 bits: 73 years."""
MOST_COUNT = 2**31
"""Sessions, blocks, steps, epochs and samples are fewer."""
MOST_MESSAGES = 2**16
"""Messages of one step are fewer."""
MOST_PAYLOAD_BYTES = 2**46
"""A message is smaller, so that those of a step add up within 64 bits."""
MOST_LOSS = 1e100
"""A loss beyond it is as good as not finite: sums of it would not be."""
ROUNDING_S = 1e-6
"""By so much a part of a step may be below 0."""


def whole(kind: Kind) -> pl.Expr:
    """Whether a sample is a whole record with numbers that can be: true or false, never null."""
    conditions = _span_conditions() if kind is SPANS else _step_conditions()
    return reduce(and_, (condition.fill_null(False) for condition in conditions))


def _counts(*names: str) -> list[pl.Expr]:
    return [pl.col(name).is_between(0, MOST_COUNT) for name in names]


def _step_conditions() -> list[pl.Expr]:
    step_s = pl.col("step_s")
    least = -pl.max_horizontal(pl.lit(ROUNDING_S), step_s / 100)
    # A phase that was not marked ends where the one before it does.
    ends = [pl.coalesce(*ENDS[place::-1], pl.lit(0.0)) for place in range(len(ENDS))]
    return [
        *_counts("session", "block", "step", "epoch"),
        pl.col("launch").is_between(0, MOST_COUNT) | pl.col("launch").is_null(),
        pl.col("samples").is_between(1, MOST_COUNT),
        pl.col("timed").is_not_null(),
        pl.col("start_ns").is_between(-MOST_NS, MOST_NS),
        pl.col("clock_offset_ns").is_between(-MOST_NS, MOST_NS) | pl.col("clock_offset_ns").is_null(),
        pl.col("clock_error_ns").is_between(0, MOST_NS) | pl.col("clock_error_ns").is_null(),
        (step_s >= LEAST_S) & (step_s < MOST_S),
        *(later >= earlier for earlier, later in pairwise([pl.lit(0.0), *ends, step_s + ROUNDING_S])),
        pl.col("last_gradient_s").is_between(-MOST_S, MOST_S) | pl.col("last_gradient_s").is_null(),
        *(((pl.col(name) >= least) & (pl.col(name) < MOST_S)) | pl.col(name).is_null() for name in TAKEN_APART),
        pl.all_horizontal(pl.col(TAKEN_APART).is_null())
        | (pl.all_horizontal(pl.col(TAKEN_APART).is_not_null()) & (pl.sum_horizontal(PARTS) > 0)),
    ]


def _span_conditions() -> list[pl.Expr]:
    """Of columns of lists, one entry each per message."""
    count = pl.col("kind").list.len()
    sizes, issued, done, ready = (pl.col(name).list for name in ("payload_bytes", "issued_s", "done_s", "ready_s"))
    blocking = pl.col("blocking").list
    return [
        *_counts("session", "step"),
        count < MOST_MESSAGES,
        *(pl.col(name).list.len() == count for name in ("payload_bytes", "issued_s", "done_s")),
        *(
            ~pl.col(name).list.contains(None, nulls_equal=True)
            for name in ("kind", "payload_bytes", "issued_s", "done_s")
        ),
        pl.col("blocking").is_null() | ((blocking.len() == count) & ~blocking.contains(None, nulls_equal=True)),
        pl.col("ready_s").is_null() | ((ready.len() == count) & (ready.max().fill_null(0.0).abs() < MOST_S)),
        (count == 0) | ((sizes.min() >= 0) & (sizes.max() < MOST_PAYLOAD_BYTES)),
        *((count == 0) | ((at.min() > -MOST_S) & (at.max() < MOST_S) & at.sum().is_finite()) for at in (issued, done)),
    ]


def readable(kind: Kind, samples: pl.LazyFrame) -> pl.LazyFrame:
    """The samples with defaults for what an earlier version did not write, and null for a loss that says nothing."""
    if kind is SPANS:
        return samples
    return samples.with_columns(
        pl.col("synchronised").fill_null(True),
        pl.col("launch", "clock_offset_ns", "clock_error_ns").fill_null(0),
        pl.when(pl.col("loss").abs() < MOST_LOSS).then("loss").alias("loss"),
        pl.when(pl.col("accuracy").is_between(0, 1)).then("accuracy").alias("accuracy"),
        pl.when(pl.col("reference_s").is_between(LEAST_S, MOST_S)).then("reference_s").alias("reference_s"),
    )
