"""What a table says, entry by entry: a quantity in SI units, with its N, batch and labels (method.md §16)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from worldsize.analysis.audit.columns import Column, columns_of, filled, names_quantity, on_axis, one_axis
from worldsize.analysis.audit.labels import ROWS_READ, label_of
from worldsize.analysis.audit.meaning import Meaning, meaning
from worldsize.analysis.audit.numbers import Printed, Span, all_printed, whole_number
from worldsize.analysis.audit.overrides import Overrides
from worldsize.analysis.audit.quantities import AXES, KINDS, PARTS, TIMES, Quantity, agrees
from worldsize.analysis.audit.units import Unit, units_said
from worldsize.analysis.audit.words import Words
from worldsize.documents.document import Table


class Place(NamedTuple):
    """Of an entry: table, row and column, from 0; row −1 is the heading."""

    table: int
    row: int
    column: int


@dataclass(frozen=True)
class Fact:
    """One number of a table with all that its row, column and caption say of it."""

    quantity: Quantity
    number: Printed
    span: Span
    """Seconds, samples a second, bytes, bytes a second, parts of one, or a count."""
    place: Place
    unit: Unit | None = None
    per: str | None = None
    n: int | None = None
    nodes: int | None = None
    batch: int | None = None
    batch_per: str | None = None
    row_labels: tuple[str, ...] = ()
    column_label: str = ""
    bold: bool = False
    replicas: int | None = None
    """Workers that share the data, where they are fewer than N; 0 where they are, and it is not said how many."""

    @property
    def sharing(self) -> int | None:
        """Workers with a batch each; None where nothing says how many."""
        return self.n if self.replicas is None else self.replicas or None

    @property
    def text(self) -> str:
        """As it was printed."""
        return self.number.text


@dataclass(frozen=True)
class Reading:
    """A table as it was understood."""

    index: int
    table: Table
    words: Words
    columns: tuple[Column, ...]
    facts: tuple[Fact, ...]

    def of(self, *quantities: Quantity) -> list[Fact]:
        """The facts of some quantities, in the order of the table."""
        return [fact for fact in self.facts if fact.quantity in quantities]


def read_table(index: int, table: Table, words: Words, overrides: Overrides) -> Reading:
    """All facts of a table."""
    table = filled(table)
    columns = columns_of(table, words, overrides)
    columns = one_axis(columns, table)
    facts: list[Fact] = []
    for row, entries in enumerate(table.rows):
        if _is_summary(entries):
            continue
        facts += _of_row(index, row, entries, columns, table, words)
    return Reading(index, table, words, tuple(columns), tuple(_settled(facts, words)))


MEASURED = (*TIMES, *PARTS, Quantity.BYTES, Quantity.BANDWIDTH)
"""What a unit in the cell itself can correct."""
_BY_UNIT = {
    "time": Quantity.TIME,
    "bytes": Quantity.BYTES,
    "bandwidth": Quantity.BANDWIDTH,
    "rate": Quantity.RATE,
    "step_rate": Quantity.STEP_RATE,
}
_CLAIM = re.compile(
    r"\d\s*(?:[x×]|times|%|percent)\s+(?:as|fast\w*|slow\w*|high\w*|less|more|better|efficien\w+)", re.IGNORECASE
)
"""A sentence above a table that claims something says nothing of what its cells are."""
MINUTES = Unit("time", 60.0, "min")
COUNTED = (Quantity.N, Quantity.NODES, Quantity.PER_NODE, Quantity.BATCH, Quantity.ACCUMULATION)
"""Set, not measured: exact, however they end."""


SUMMARY = re.compile(r"^\W*(?:average|avg\.?|mean|total|sum|geo(?:metric )?mean|overall)\W*$", re.IGNORECASE)


def _is_summary(entries: tuple[str, ...]) -> bool:
    return bool(entries) and SUMMARY.match(entries[0]) is not None


class _Row(NamedTuple):
    said: Meaning
    labels: tuple[str, ...]


def _of_row(
    index: int, row: int, entries: tuple[str, ...], columns: list[Column], table: Table, words: Words
) -> Iterator[Fact]:
    context = _row(entries, columns, table)
    beside = (None, *AXES, Quantity.SPEEDUP, Quantity.EFFICIENCY)
    matrix = all(column.label or column.meaning.quantity in beside for column in columns)
    matrix = matrix and not any(names_quantity(entry) for each in table.rows for entry in each[:1])
    caption = meaning(words.caption) if words.caption and matrix and not _CLAIM.search(words.caption) else Meaning()
    said_units = units_said(words.caption)
    for place, (entry, column) in enumerate(zip(entries, columns, strict=False)):
        if column.label or not entry.strip():
            continue
        said = _joined(column.meaning, context.said, caption)
        if column.meaning.quantity in AXES:
            said = column.meaning
        for order, number in enumerate(all_printed(entry)[:3]):
            quantity, unit = _quantity(said, number, order)
            if quantity is None:
                continue
            if number.unit is None and agrees(MINUTES, quantity) and re.fullmatch(r"[~≈]?\s*[\d.]+\s?m", entry.strip()):
                unit = MINUTES  # beside "3h 20m"
            unit = unit or _only_unit(said_units, quantity)
            factor = unit.factor if unit and agrees(unit, quantity) else 1.0
            yield Fact(
                quantity,
                number,
                number.span * factor,
                Place(index, row, place),
                unit=unit,
                per=said.per,
                n=said.n if said.n is not None else context.said.n,
                nodes=said.nodes if said.nodes is not None else context.said.nodes,
                batch=said.batch if said.batch is not None else context.said.batch,
                batch_per=said.batch_per or context.said.batch_per,
                row_labels=context.labels,
                column_label=said.rest if quantity in AXES else column.meaning.rest,
                bold=(row, place) in table.bold,
            )


def _only_unit(units: list[Unit], quantity: Quantity) -> Unit | None:
    """The one of a caption that a quantity can have."""
    found = {unit.name: unit for unit in units if agrees(unit, quantity)}
    return next(iter(found.values())) if len(found) == 1 else None


def _joined(column: Meaning, row: Meaning, caption: Meaning) -> Meaning:
    """The column says more than the row, the row more than the caption; a transposed table has quantities in rows."""
    said = column.under(replace(row, rest=""))
    if said.quantity is None and row.quantity is not None:
        said = replace(said, quantity=row.quantity, unit=said.unit or row.unit, per=said.per or row.per)
    if said.quantity is None and caption.quantity not in AXES:  # its "per GPU" is that of a batch as a rule
        said = replace(said, quantity=caption.quantity, unit=said.unit or caption.unit, per=said.per or caption.per)
    return said


def _row(entries: tuple[str, ...], columns: list[Column], table: Table) -> _Row:
    """What the entries of a row that name it say together; counts of their own columns before those of labels."""
    said, labels, counted, each = Meaning(), [], Meaning(), None
    for place, (entry, column) in enumerate(zip(entries, columns, strict=False)):
        quantity = column.meaning.quantity
        if column.label:
            others = [row[place] for row in table.rows[:ROWS_READ] if place < len(row)]
            named = label_of(entry, column.heading, others, counts=quantity is Quantity.N)
            per = named.per if named.quantity is not None else None
            said = replace(named, rest="", per=per).under(said)
            labels += [named.rest] if named.rest else []
        elif quantity is Quantity.PER_NODE:
            each = whole_number(entry)
        elif (
            quantity in (Quantity.N, Quantity.NODES, Quantity.BATCH)
            and (count := whole_number(entry)) is not None
            and count > 0
        ):
            if quantity is not Quantity.BATCH:
                counted = on_axis(quantity, count).under(counted)
            elif counted.batch is None or column.meaning.per == "worker":
                counted = replace(counted, batch=count, batch_per=column.meaning.per)
    if each and counted.n is None and counted.nodes is not None:
        counted = replace(counted, n=counted.nodes * each)
    return _Row(counted.under(said), tuple(labels))


def _quantity(said: Meaning, number: Printed, order: int) -> tuple[Quantity | None, Unit | None]:
    """The first number of an entry is what its heading says; one in brackets says itself what it is."""
    own = number.unit
    if order == 0:
        quantity = said.quantity
        if own and own.kind == "percent" and quantity is Quantity.SPEEDUP:
            quantity = Quantity.EFFICIENCY
        if own and own.kind in ("time", "rate", "step_rate", "bandwidth") and quantity is None:
            quantity = _BY_UNIT[own.kind]
        if own and own.kind in _BY_UNIT and (quantity in MEASURED or quantity is Quantity.UTILIZATION):
            quantity = quantity if agrees(own, quantity) else _BY_UNIT[own.kind]
        return quantity, own or said.unit
    if own is None:
        return None, None
    if own.kind == "ratio":
        return Quantity.SPEEDUP, own
    if own.kind == "percent" and said.quantity in (Quantity.SPEEDUP, Quantity.RATE):
        return Quantity.EFFICIENCY, own
    return None, None


def _with_batch(fact: Fact, facts: list[Fact]) -> Fact:
    """Of a table whose rows are quantities: the batch that another row says of the same column."""
    if fact.batch is not None or fact.quantity in AXES:
        return fact
    found = [each for each in facts if each.quantity is Quantity.BATCH and each.place.column == fact.place.column]
    found = [each for each in found if each.place.row != fact.place.row and each.row_labels == fact.row_labels]
    local = [each for each in found if each.per == "worker"] or found
    if len(local) != 1 or len({each.place.row for each in facts if each.quantity is Quantity.BATCH}) > 2:
        return fact
    return replace(fact, batch=int(local[0].number.value), batch_per=local[0].per)


def _with_n(fact: Fact, facts: list[Fact]) -> Fact:
    """Of "1 GPU, 8 GPUs, Speedup": of its largest N; one of several: of that left of it."""
    ratios = (Quantity.SPEEDUP, Quantity.EFFICIENCY)
    if fact.quantity not in ratios or fact.n is not None or fact.nodes is not None:
        return fact
    row = [each for each in facts if each.place.row == fact.place.row]
    counted = [each for each in row if each.quantity in (*TIMES, Quantity.RATE) and each.n is not None]
    if len({each.n for each in counted}) < 2 or len({each.quantity for each in counted}) > 1:
        return fact
    if sum(each.quantity is fact.quantity for each in row) > 1:
        counted = [each for each in counted if each.place.column < fact.place.column][-1:]
    return replace(fact, n=max((each.n for each in counted if each.n), default=None))


def _settled(facts: list[Fact], words: Words) -> Iterator[Fact]:
    """What only all facts of a column together tell: percent without its sign, and what a bare time is of."""
    percent = {
        column
        for column in {fact.place.column for fact in facts}
        if any(
            fact.quantity in (Quantity.EFFICIENCY, Quantity.ACCURACY, Quantity.SHARE)
            and fact.unit is None
            and fact.span.mid > 2.5
            for fact in facts
            if fact.place.column == column
        )
    }
    facts = [_with_n(_with_batch(fact, facts), facts) for fact in facts]
    # Beside a column that is said to be of an epoch, another time is of something else: of all epochs, as a rule.
    bare = {"epoch": Quantity.EPOCH_TIME, "step": Quantity.STEP_TIME}.get(words.time_of or "", Quantity.TIME)
    said = {fact.quantity for fact in facts}
    alone = words.workers if all(fact.n is None and fact.nodes is None for fact in facts) else None
    for fact in facts:
        quantity, span = fact.quantity, fact.span
        if fact.place.column in percent and fact.unit is None and quantity in KINDS["percent"]:
            span = span * 0.01
        if quantity is Quantity.TIME and bare not in said:
            quantity = bare
        if quantity in COUNTED and fact.number.whole:
            span = Span.exact(fact.number.value)
        n = fact.n if fact.n is not None else fact.nodes if fact.nodes is not None else alone
        batch = fact.batch if fact.batch is not None else words.batch
        batch_per = fact.batch_per or (words.batch_per if batch is not None else None)
        yield replace(fact, quantity=quantity, span=span, n=n, batch=batch, batch_per=batch_per)
