"""What a table says, entry by entry: a quantity in SI units, of which N, batch and labels (method.md §16)."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from worldsize.analysis.audit.meaning import AXES, NODES, TIMES, WORKERS, Meaning, Quantity, meaning
from worldsize.analysis.audit.numbers import CLOCK, HOURS, Printed, Span, all_printed, whole_number
from worldsize.analysis.audit.overrides import Overrides
from worldsize.analysis.audit.units import Unit
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

    @property
    def text(self) -> str:
        """As it was printed."""
        return self.number.text


@dataclass(frozen=True)
class Column:
    """How a column was read."""

    heading: str
    meaning: Meaning
    label: bool
    """It names rows, and has no numbers of its own."""


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
    columns = _columns(table, words, overrides)
    columns = _one_axis(columns, table)
    facts: list[Fact] = []
    for row, entries in enumerate(table.rows):
        if _is_summary(entries):
            continue
        facts += _of_row(index, row, entries, columns, table, words)
    return Reading(index, table, words, tuple(columns), tuple(_settled(facts, words)))


COUNTED = (Quantity.N, Quantity.NODES, Quantity.BATCH, Quantity.ACCUMULATION)
"""Set, not measured: exact, however they end."""


def filled(table: Table) -> Table:
    """With the blanks of leading columns filled from above, as a group of rows is printed in Markdown."""
    rows: list[tuple[str, ...]] = []
    width = max((len(row) for row in table.rows), default=0)
    full = next(
        (column for column in range(width) if all(column < len(row) and row[column].strip() for row in table.rows)), 0
    )
    for row in table.rows:
        if rows and not any(entry.strip() for entry in row[:1]):
            row = tuple(
                above if column < full and not entry.strip() else entry
                for column, (entry, above) in enumerate(zip(row, rows[-1], strict=False))
            )
        elif rows and full:
            first = next((column for column in range(full) if row[column].strip()), full)
            row = tuple(rows[-1][column] if column < first else entry for column, entry in enumerate(row))
        rows.append(row)
    return replace(table, rows=tuple(rows))


SUMMARY = re.compile(r"^\W*(?:average|avg\.?|mean|total|sum|geo(?:metric )?mean|overall)\W*$", re.IGNORECASE)


def _is_summary(entries: tuple[str, ...]) -> bool:
    return bool(entries) and SUMMARY.match(entries[0]) is not None


def _columns(table: Table, words: Words, overrides: Overrides) -> list[Column]:
    width = max((len(row) for row in (*table.header, *table.rows)), default=0)
    headings = grouped([_heading(table, column) for column in range(width)])
    axis = _axis_of_headings(headings, table, words)
    found = []
    for column, levels in enumerate(headings):
        given = overrides.column(words.caption, levels)
        said = given or _folded(levels, axis if column else None, " ".join(headings[0]))
        entries = [row[column] for row in table.rows if column < len(row) and row[column].strip()]
        numeric = sum(_leads_with_number(entry) for entry in entries)
        label = given is None and (not entries or 2 * numeric < len(entries) or _named(said, entries))
        found.append(Column(" · ".join(levels), said, label))
    return found


def _one_axis(columns: list[Column], table: Table) -> list[Column]:
    """With one column of N: of several the one that says total; of processes beside threads neither is N."""
    found = [
        index for index, column in enumerate(columns) if column.meaning.quantity is Quantity.N and not column.label
    ]
    counts = {tuple(row[index] for row in table.rows if index < len(row)) for index in found}
    if len(counts) < 2:
        return columns
    total = [index for index in found if re.search("total|world|all", columns[index].heading.lower())]
    kept = total[0] if len(total) == 1 else None
    other = Meaning(Quantity.OTHER)
    return [
        replace(column, meaning=other) if index in found and index != kept else column
        for index, column in enumerate(columns)
    ]


def _heading(table: Table, column: int) -> list[str]:
    """The levels of a column's heading, outermost first, each once; "32 per GPU: Time (s)" has two."""
    levels: list[str] = []
    for row in table.header:
        text = row[column].strip() if column < len(row) else ""
        if text and (not levels or levels[-1] != text):
            levels.append(text)
    if len(levels) == 1 and (found := re.fullmatch(r"([^:]+):\s+(.+)", levels[0])) is not None:
        levels = [found[1].strip(), found[2].strip()]
    return levels


def grouped(headings: list[list[str]]) -> list[list[str]]:
    """Headings that stand several times belong to the group that begins left of each: "A: Time", "Speedup", "B: Time", "Speedup"."""
    last = [levels[-1] if levels else "" for levels in headings]
    outer: list[str] = []
    found = []
    for levels, name in zip(headings, last, strict=True):
        if len(levels) > 1:
            outer = levels[:-1]
        elif outer and name and last.count(name) > 1:
            levels = [*outer, name]
        found.append(levels)
    return found


def _folded(levels: list[str], axis: Quantity | None, corner: str) -> Meaning:
    said = Meaning()
    for level in levels:
        inner = _nodes_by(level, corner) or meaning(level)
        if axis is not None and (count := _bare(level)) is not None:
            inner = _on_axis(axis, count)
        said = inner.under(said)
    return said


def _bare(level: str) -> int | None:
    """A heading that is a count and nothing else."""
    return whole_number(level) if re.fullmatch(r"[\s×x]*[\d,]+k?[\s×x]*", level) else None


def _on_axis(axis: Quantity, count: int) -> Meaning:
    if axis is Quantity.N:
        return Meaning(n=count)
    if axis is Quantity.NODES:
        return Meaning(nodes=count)
    return Meaning(batch=count) if axis is Quantity.BATCH else Meaning(rest=str(count))


def _axis_of_headings(headings: list[list[str]], table: Table, words: Words) -> Quantity | None:
    """What headings that are bare counts count: "1, 2, 4, 8" beside a corner that says "GPUs"."""
    bare = {count for levels in headings[1:] for level in levels if (count := _bare(level)) is not None}
    if len(bare) < 2:
        return None
    corner = headings[0] if headings else []
    rows = [meaning(row[0]) for row in table.rows if row]
    of_rows = meaning(corner[-1]).quantity if corner else None
    if any(row.n is not None for row in rows) or (of_rows is Quantity.N and _counts(table)):
        return Quantity.BATCH  # rows are N; the usual second axis is the batch size
    beside = [level for levels in headings[1:] for level in levels[:-1] if _bare(level) is None]
    for text in [*beside[:1], *corner, words.caption]:
        found = meaning(text).quantity
        if found in (Quantity.N, Quantity.BATCH, Quantity.NODES):
            return found
    counts = sorted(bare)
    return Quantity.N if counts[0] in (1, 2) and counts[-1] <= 4096 else None


def _counts(table: Table) -> bool:
    """The first column has counts, and is no list of quantities."""
    return all(row and whole_number(row[0]) is not None for row in table.rows)


def _leads_with_number(entry: str) -> bool:
    """A number, perhaps with a unit: "1-GPU" and "8x V100" are names."""
    if HOURS.fullmatch(entry.strip()) or CLOCK.fullmatch(entry.strip()):
        return True
    return re.match(
        r"^[\s~≈<>≤≥+$(*-]*[−–-]?[.\d][\d.,:'eE+ -]*\s*(?:[%×x]|[a-zA-Zµ/]{0,9})?\s*(?:$|[(±/±+\[]|\+/-)", entry
    ) is not None and not re.match(
        r"^\d+\s*-?\s*(?:gpu|node|worker|device|process|proc|rank|x\s)", entry.strip().lower()
    )


def _named(said: Meaning, entries: list[str]) -> bool:
    """A column of numbers that names rows: a heading that says nothing over "1-GPU", "2-GPU"."""
    return said.quantity is None and all(
        meaning(entry).n is not None or meaning(entry).nodes is not None for entry in entries
    )


def _names_quantity(entry: str) -> bool:
    """Of a table whose rows are quantities."""
    quantity = meaning(entry).quantity
    return quantity is not None and quantity not in AXES and quantity is not Quantity.OTHER


class _Row(NamedTuple):
    said: Meaning
    labels: tuple[str, ...]


def _of_row(
    index: int, row: int, entries: tuple[str, ...], columns: list[Column], table: Table, words: Words
) -> Iterator[Fact]:
    context = _row(entries, columns)
    matrix = all(
        column.label or column.meaning.quantity is None or column.meaning.quantity in AXES for column in columns
    )
    matrix = matrix and not any(_names_quantity(entry) for each in table.rows for entry in each[:1])
    caption = meaning(words.caption) if words.caption and matrix else Meaning()
    for place, (entry, column) in enumerate(zip(entries, columns, strict=False)):
        if column.label or not entry.strip():
            continue
        said = _joined(column.meaning, context.said, caption)
        if column.meaning.quantity in AXES:
            said = column.meaning
        for order, number in enumerate(all_printed(entry)[:2]):
            quantity, unit = _quantity(said, number, order)
            if quantity is None:
                continue
            factor = unit.factor if unit and _agrees(unit, quantity) else 1.0
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


def _joined(column: Meaning, row: Meaning, caption: Meaning) -> Meaning:
    """The column says more than the row, the row more than the caption; a row of a transposed table has the quantity."""
    said = column.under(replace(row, rest=""))
    if said.quantity is None and row.quantity is not None:
        said = replace(said, quantity=row.quantity, unit=said.unit or row.unit, per=said.per or row.per)
    if said.quantity is None and caption.quantity not in AXES:  # its "per GPU" is that of a batch as a rule
        said = replace(said, quantity=caption.quantity, unit=said.unit or caption.unit, per=said.per or caption.per)
    return said


def _row(entries: tuple[str, ...], columns: list[Column]) -> _Row:
    """What the entries of a row that name it say together; counts of their own columns before those of labels."""
    said, labels, counted = Meaning(), [], Meaning()
    for entry, column in zip(entries, columns, strict=False):
        quantity = column.meaning.quantity
        if column.label:
            named = _nodes_by(entry, column.heading) or meaning(entry)
            if named.n is None and quantity is Quantity.N and whole_number(entry) is not None:
                named = replace(named, n=whole_number(entry))
            per = named.per if named.quantity is not None else None
            said = replace(named, rest="", per=per).under(said)
            labels += [named.rest] if named.rest else []
        elif (
            quantity in (Quantity.N, Quantity.NODES, Quantity.BATCH)
            and (count := whole_number(entry)) is not None
            and count > 0
        ):
            if quantity is not Quantity.BATCH:
                counted = _on_axis(quantity, count).under(counted)
            elif counted.batch is None or column.meaning.per == "worker":
                counted = replace(counted, batch=count, batch_per=column.meaning.per)
    return _Row(counted.under(said), tuple(labels))


def _nodes_by(entry: str, heading: str) -> Meaning | None:
    """ "2 x 8" under "Nodes x GPUs"."""
    heading = heading.lower()
    found = re.fullmatch(r"\s*(\d+)\s*[x×*]\s*(\d+)\s*", entry)
    if found is None or not re.search(NODES, heading) or not re.search(WORKERS, heading):
        return None
    return Meaning(n=int(found[1]) * int(found[2]), nodes=int(found[1]))


def _quantity(said: Meaning, number: Printed, order: int) -> tuple[Quantity | None, Unit | None]:
    """The first number of an entry is what its heading says; one in brackets says itself what it is."""
    own = number.unit
    if order == 0:
        quantity = said.quantity
        if own and own.kind == "percent" and quantity is Quantity.SPEEDUP:
            quantity = Quantity.EFFICIENCY
        if own and own.kind == "time" and quantity is None:
            quantity = Quantity.TIME
        return quantity, own or said.unit
    if own is None:
        return None, None
    if own.kind == "ratio":
        return Quantity.SPEEDUP, own
    if own.kind == "percent" and said.quantity in (Quantity.SPEEDUP, Quantity.RATE):
        return Quantity.EFFICIENCY, own
    return None, None


_KINDS = {
    "time": (*TIMES, Quantity.COMPUTE, Quantity.COMMUNICATION, Quantity.DATA),
    "rate": (Quantity.RATE,),
    "step_rate": (Quantity.STEP_RATE,),
    "bytes": (Quantity.BYTES,),
    "bandwidth": (Quantity.BANDWIDTH, Quantity.ALGBW, Quantity.BUSBW),
    "percent": (Quantity.EFFICIENCY, Quantity.SHARE, Quantity.ACCURACY, Quantity.SERIAL, Quantity.SPEEDUP),
    "ratio": (Quantity.SPEEDUP,),
}


def _agrees(unit: Unit, quantity: Quantity) -> bool:
    return quantity in _KINDS.get(unit.kind, ())


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
    facts = [_with_batch(fact, facts) for fact in facts]
    alone = words.workers if all(fact.n is None and fact.nodes is None for fact in facts) else None
    for fact in facts:
        quantity, span = fact.quantity, fact.span
        if fact.place.column in percent and fact.unit is None and quantity in _KINDS["percent"]:
            span = span * 0.01
        if quantity is Quantity.TIME and words.time_of in ("epoch", "step"):
            quantity = Quantity.EPOCH_TIME if words.time_of == "epoch" else Quantity.STEP_TIME
        if quantity in COUNTED and fact.number.whole:
            span = Span.exact(fact.number.value)
        n = fact.n if fact.n is not None else fact.nodes if fact.nodes is not None else alone
        batch = fact.batch if fact.batch is not None else words.batch
        batch_per = fact.batch_per or (words.batch_per if batch is not None else None)
        yield replace(fact, quantity=quantity, span=span, n=n, batch=batch, batch_per=batch_per)
