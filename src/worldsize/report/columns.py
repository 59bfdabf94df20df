"""Columns that know how their entries are made, and tables that are made of them: a column is told in one place."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from worldsize.analysis.numbers import GB, GIB, MIB
from worldsize.analysis.statistics import Ratio
from worldsize.report.tables import Column, Entry, Table, estimate, integer, interval_keys, number, text
from worldsize.results.records import Estimate

MS = 1e3
PERCENT = 100
FACTORS: Mapping[str, float] = {
    "ms": MS,
    "µs": 1e6,
    "%": PERCENT,
    "points": PERCENT,
    "MB": 1e-6,
    "GB": 1 / GB,
    "GB/s": 1 / GB,
    "MiB": 1 / MIB,
    "GiB": 1 / GIB,
}
"""From the unit of a raw value (seconds, bytes, a share of 1) to that of a heading; 1 for all others."""

Row = TypeVar("Row")


@dataclass(frozen=True)
class ColumnOf(Column, Generic[Row]):
    """A column of a table whose rows are made from objects of one type."""

    value: Callable[[Row], Entry] = field(kw_only=True, compare=False)
    """Makes the entry of a row."""


def table_of(
    name: str, title: str, columns: Iterable[ColumnOf[Row] | None], rows: Iterable[Row], note: str = ""
) -> Table:
    """A table with a row for each object; a column that is None is left out."""
    kept = tuple(column for column in columns if column is not None)
    return Table(name, title, kept, tuple(tuple(column.value(row) for column in kept) for row in rows), note)


def texts(label: str, key: str, value: Callable[[Row], str | None]) -> ColumnOf[Row]:
    """A column of names and words, each on one line."""
    return ColumnOf(label, (key,), align="left", value=lambda row: text(value(row)))


def prose(label: str, key: str, value: Callable[[Row], str | None]) -> ColumnOf[Row]:
    """A column of text that may be broken into lines."""
    return ColumnOf(label, (key,), align="prose", value=lambda row: text(value(row)))


def integers(label: str, key: str, value: Callable[[Row], int | None], unit: str = "") -> ColumnOf[Row]:
    """A column of exact counts."""
    return ColumnOf(label, (key,), unit, value=lambda row: integer(value(row)))


def numbers(
    label: str,
    key: str,
    value: Callable[[Row], float | None],
    unit: str = "",
    *,
    factor: float | None = None,
    between_workers: bool = False,
    note: str = "",
) -> ColumnOf[Row]:
    """A column of numbers; `factor` for a heading that names its unit in the label alone."""
    times = factor or FACTORS.get(unit, 1.0)
    return ColumnOf(
        label, (key,), unit, between_workers=between_workers, note=note, value=lambda row: number(value(row), times)
    )


def estimates(label: str, key: str, value: Callable[[Row], Estimate | Ratio | None], unit: str = "") -> ColumnOf[Row]:
    """A column of values with their 95 % intervals; their keys are `key`, and with `_low` and `_high`."""

    def entry(row: Row) -> Entry:
        found = value(row)
        return estimate(found.estimate if isinstance(found, Ratio) else found, FACTORS.get(unit, 1.0))

    return ColumnOf(label, interval_keys(key), unit, value=entry)
