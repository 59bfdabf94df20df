"""How the columns of a table were read: what each heading means, and which columns only name rows."""

import re
from dataclasses import dataclass, replace

from worldsize.analysis.audit.labels import nodes_by
from worldsize.analysis.audit.meaning import PRODUCTS, WORKERS, Meaning, meaning
from worldsize.analysis.audit.numbers import CLOCK, all_printed, is_parted, whole_number
from worldsize.analysis.audit.overrides import Overrides
from worldsize.analysis.audit.quantities import AXES, PARTS, Quantity
from worldsize.analysis.audit.units import unit_of
from worldsize.analysis.audit.words import Words
from worldsize.documents.document import Table

SHARED = (Quantity.RATE, Quantity.STEP_RATE, Quantity.BATCH, Quantity.BYTES)
"""What is printed of all workers, and beside it of each."""
_IDEAL = re.compile(
    r"^\W*(?:ideal|theoretical|perfect|linear)(?!.*efficien)(?:\b|_)|[(\[](?:ideal|theoretical|perfect|linear)[)\]]",
    re.IGNORECASE,
)
"""Not measured: N times the base, printed to be compared with."""
_COUNTS = re.compile(
    r"\b(?:number|num|no|count|gpu|gcd|tpu|worker|process|proc|rank|device|accelerator|card|chip|core|thread)"
    r"|cpu|trainer|world|^[npw#]p?$"
)
"""What heads counts of workers, be they named as well or not."""
_REST = re.compile(
    r"(?:weight |parameter |param )?updates?|opt(?:im)?|h2d|d2h|(?:memory |host |gpu )?cop(?:y|ies)|memcpy|bubbles?"
    r"|idle|others?|misc|rest|eval(?:uation)?|check-?pointing?|logging|wait(?:ing)?"
)
_DATA = re.compile("data|input|loader|loading")
_EACH = re.compile(rf"\W*(?:per|/|each)[\s-]*{WORKERS}\W*")


@dataclass(frozen=True)
class Column:
    """How a column was read."""

    heading: str
    meaning: Meaning
    label: bool
    """It names rows, and has no numbers of its own."""


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


def columns_of(table: Table, words: Words, overrides: Overrides) -> list[Column]:
    """How each column is read; raises UsageError for an override with an unknown quantity or unit."""
    width = max((len(row) for row in (*table.header, *table.rows)), default=0)
    headings = _least(grouped([_heading(table, column) for column in range(width)]))
    axis = _axis_of_headings(headings, table, words)
    found = []
    for column, levels in enumerate(headings):
        given = overrides.column(words.caption, levels)
        said = given or _folded(levels, axis if column else None, " ".join(headings[0]))
        entries = [row[column] for row in table.rows if column < len(row) and row[column].strip()]
        money = 2 * sum(re.match(r"\s*[$€£¥]\s?\d", entry) is not None for entry in entries) > len(entries)
        if given is None and ((levels and _IDEAL.search(levels[-1])) or money):
            said = Meaning(Quantity.OTHER)
        numeric = sum(
            _leads_with_number(entry) and not (said.quantity is None and _is_name(entry)) for entry in entries
        )
        label = given is None and (not entries or 2 * numeric < len(entries) or _named(said, entries))
        found.append(Column(" · ".join(levels), said, label))
    return found


def one_axis(columns: list[Column], table: Table) -> list[Column]:
    """With one column of N: of several the one that says total; of processes beside threads neither is N."""
    columns = _rests(_replicas(_products(_each(columns), table)))
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


def _products(columns: list[Column], table: Table) -> list[Column]:
    """The name of an accelerator heads counts of it, alone and over whole numbers; else what was measured on it."""
    named = [
        index
        for index, column in enumerate(columns)
        if column.meaning.quantity is Quantity.N
        and not column.label
        and column.meaning.n is None
        and re.search(PRODUCTS, column.heading.lower())
        and not _COUNTS.search(column.heading.split(" · ")[-1].lower().replace("#", "number "))
    ]
    counts = [index for index, column in enumerate(columns) if column.meaning.quantity is Quantity.N]
    found = list(columns)
    for index in named:
        column = columns[index]
        entries = [row[index] for row in table.rows if index < len(row) and row[index].strip()]
        if len(counts) > 1 or column.meaning.rest or not all(whole_number(entry) for entry in entries):
            said = replace(column.meaning, quantity=None, rest=column.heading.lower())
            found[index] = replace(column, meaning=said)
    return found


def _replicas(columns: list[Column]) -> list[Column]:
    """DP beside TP or PP counts replicas; elsewhere it is a strategy as well."""
    if not any(column.meaning.quantity is Quantity.SPLIT for column in columns):
        return columns
    return [
        replace(column, meaning=Meaning(Quantity.REPLICAS)) if column.heading.strip().lower() == "dp" else column
        for column in columns
    ]


def _rests(columns: list[Column]) -> list[Column]:
    """Beside two parts of a time: what else takes time, though its name would not say so; all in the unit of most."""
    parts = [column.meaning for column in columns if column.meaning.quantity in PARTS and not column.label]
    if len(parts) < 2:
        return columns
    units = {each.unit.name: each.unit for each in parts if each.unit is not None}
    unit = next(iter(units.values())) if len(units) == 1 else None
    found = []
    for column in columns:
        name = column.heading.split(" · ")[-1].lower().strip(" .")
        bare = _DATA.fullmatch(name) and not units  # where the other headings have units, it would have one as well
        if column.meaning.quantity is None and not column.label and (bare or _REST.fullmatch(name)):
            column = replace(column, meaning=replace(parts[-1], quantity=Quantity.TIME, rest=name, unit=unit))
        elif column.meaning.quantity in PARTS and column.meaning.unit is None:
            column = replace(column, meaning=replace(column.meaning, unit=unit))
        found.append(column)
    return found


def _each(columns: list[Column]) -> list[Column]:
    """A heading "per GPU" alone is no N: it says again of one worker what stands left of it."""
    found: list[Column] = []
    for column in columns:
        if _EACH.fullmatch(column.heading.lower()) and column.meaning.quantity is Quantity.N:
            left = [each.meaning for each in found if each.meaning.quantity in SHARED and not each.label]
            column = replace(column, meaning=replace(left[-1] if left else Meaning(Quantity.OTHER), per="worker"))
        found.append(column)
    return found


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


def _least(headings: list[list[str]]) -> list[list[str]]:
    """Beside "max" or "mean" a bare "min" is the least, and no minute."""
    last = {levels[-1].lower() for levels in headings if levels}
    if last.isdisjoint(("max", "mean", "avg", "average", "median")):
        return headings
    return [[*levels[:-1], "minimum"] if levels and levels[-1].lower() == "min" else levels for levels in headings]


def grouped(headings: list[list[str]]) -> list[list[str]]:
    """Headings that stand several times are of the group left of each: "A: Time", "Speedup", "B: Time", "Speedup"."""
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
        inner = nodes_by(level, corner) or meaning(level)
        if axis is not None and (count := _bare(level)) is not None:
            inner = on_axis(axis, count)
        said = inner.under(said)
    return said


def _bare(level: str) -> int | None:
    """A heading that is a count and nothing else."""
    return whole_number(level) if re.fullmatch(r"[\s×x]*[\d,]+k?[\s×x]*", level) else None


def on_axis(axis: Quantity, count: int) -> Meaning:
    """A count of workers, of nodes or of samples in a batch."""
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
    if is_parted(entry.strip()) or CLOCK.fullmatch(entry.strip()) or _measured(entry):
        return True
    return re.match(
        r"^[\s~≈<>≤≥+$(*-]*[−–-]?[.\d][\d.,:'eE+ -]*\s*(?:[%×x]|[a-zA-Zµ/]{0,9})?\s*(?:$|[(±/±+\[]|\+/-)", entry
    ) is not None and not re.match(
        r"^\d+\s*-?\s*(?:gpu|node|worker|device|process|proc|rank|x\s)", entry.strip().lower()
    )


def _is_name(entry: str) -> bool:
    """A number with a word that is no unit, as "10 GbE": where the heading says nothing it is a name."""
    found = re.fullmatch(r"\d[\d.,]*\s*([a-zA-Z]+[a-zA-Z/]*)", entry.strip())
    return found is not None and unit_of(found[1]) is None and found[1] not in ("k", "K", "M", "B", "G", "T")


def _measured(entry: str) -> bool:
    """A number with a unit of any length: "402 samples/sec", "23.6k tok/s"."""
    text = entry.strip()
    found = all_printed(text) if text[:1].isdigit() and len(text) < LONGEST_MEASURED else []
    if not found or found[0].unit is None or not text.startswith(found[0].text):
        return False
    rest = text[len(found[0].text) :].strip()
    return not rest or rest[0] in "(±[+"


LONGEST_MEASURED = 60
"""Characters of a number with its unit."""


def _named(said: Meaning, entries: list[str]) -> bool:
    """A column of numbers that names rows: a heading that says nothing over "1-GPU", "2-GPU"."""
    return said.quantity is None and all(
        meaning(entry).n is not None or meaning(entry).nodes is not None for entry in entries
    )


def names_quantity(entry: str) -> bool:
    """Of a table whose rows are quantities."""
    quantity = meaning(entry).quantity
    return quantity is not None and quantity not in AXES and quantity is not Quantity.OTHER
