"""Facts of one quantity that differ in N alone, and which series of a table belong together."""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.known import DATA_SETS, DataSet
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.words import Words

BASE = re.compile(r"\W*(?:sequential|serial|baseline|base|reference|single)\b\W*", re.IGNORECASE)
"""The whole label of a row from which all variants of a table start."""


@dataclass(frozen=True)
class Series:
    """One quantity by N; of each N one fact."""

    quantity: Quantity
    per: str | None
    row_labels: tuple[str, ...]
    column_label: str
    batch: int | None
    batch_per: str | None
    by_n: dict[int, Fact]

    @cached_property
    def base(self) -> int:
        """The least N."""
        return min(self.by_n)

    @property
    def name(self) -> str:
        """What tells it from others of its table."""
        words = [*self.row_labels, self.column_label, f"b = {self.batch}" if self.batch else ""]
        return ", ".join(each for each in words if each)

    def facts(self) -> list[Fact]:
        """In the order of N."""
        return [self.by_n[n] for n in sorted(self.by_n)]


def series_of(reading: Reading, *quantities: Quantity) -> list[Series]:
    """All series of some quantities; two facts of one N without a label that differs make none."""
    found = []
    for quantity in quantities:
        facts = [fact for fact in reading.facts if fact.quantity is quantity and fact.n is not None]
        for group in _groups(facts):
            found += list(_unique(quantity, group))
    return found


def _groups(facts: list[Fact]) -> Iterator[list[Fact]]:
    groups: dict[tuple[object, ...], list[Fact]] = defaultdict(list)
    for fact in facts:
        groups[fact.row_labels, fact.column_label, fact.per, fact.unit and fact.unit.kind].append(fact)
    for group in _with_base(list(groups.values())):
        if _distinct(group):
            yield group
            continue
        batches: dict[tuple[int | None, str | None], list[Fact]] = defaultdict(list)
        for fact in group:
            batches[fact.batch, fact.batch_per].append(fact)
        for part in batches.values():
            columns: dict[int, list[Fact]] = defaultdict(list)
            for fact in part:
                columns[fact.place.column].append(fact)
            yield from [part] if _distinct(part) else columns.values()


def _with_base(groups: list[list[Fact]]) -> list[list[Fact]]:
    """The one row that is called the base belongs to each variant whose own rows all have more workers than it."""
    bases = [group[0] for group in groups if len(group) == 1 and _is_base(group[0])]
    if len({fact.place.row for fact in bases}) != 1:
        return groups
    joined = []
    for group in groups:
        own = next((fact for fact in bases if _alike(fact, group[0])), None)
        if own is not None and all((fact.n or 0) > (own.n or 0) for fact in group):
            group = [replace(own, row_labels=group[0].row_labels), *group]
        joined.append(group)
    return joined


def _is_base(fact: Fact) -> bool:
    """Called so, or a row of one worker beside rows that have names."""
    return any(BASE.fullmatch(label) for label in fact.row_labels) or (not fact.row_labels and fact.n == 1)


def _alike(one: Fact, other: Fact) -> bool:
    def context(fact: Fact) -> tuple[object, ...]:
        return fact.column_label, fact.per, fact.unit and fact.unit.kind

    return context(one) == context(other)


def _unique(quantity: Quantity, group: list[Fact]) -> Iterator[Series]:
    if not _distinct(group):
        return
    batches = {(fact.batch, fact.batch_per) for fact in group}
    batch, batch_per = batches.pop() if len(batches) == 1 else (None, None)
    first = group[0]
    by_n = {fact.n: fact for fact in group if fact.n is not None}
    yield Series(quantity, first.per, first.row_labels, first.column_label, batch, batch_per, by_n)


def _distinct(facts: list[Fact]) -> bool:
    return len({fact.n for fact in facts}) == len(facts)


def partners(series: Series, others: list[Series]) -> list[Series]:
    """The series that say something else of the same: of the same rows, batch and label; else the only one there is."""
    same = [other for other in others if _agree(series, other) and other.by_n.keys() & series.by_n.keys()]
    exact = [other for other in same if other.column_label == series.column_label and other.batch == series.batch]
    if exact:
        return exact
    close = [
        other
        for other in same
        if other.column_label == series.column_label
        or not other.column_label
        or not series.column_label
        or _overlap(series, other)
    ]
    pool = close or same
    # Several of one quantity: none says which is meant.
    return [
        each for each in pool if sum(other.quantity is each.quantity and other.per == each.per for other in pool) == 1
    ]


def _agree(one: Series, other: Series) -> bool:
    batches = one.batch is None or other.batch is None or one.batch == other.batch
    return batches and one.row_labels == other.row_labels


def _overlap(one: Series, other: Series) -> bool:
    return bool(set(one.column_label.split()) & set(other.column_label.split()))


@dataclass(frozen=True)
class Case:
    """Whether the work of a series grows with N, as far as anything says: the same samples at each N, or more."""

    same_work: bool
    grows: bool

    @property
    def known(self) -> bool:
        """Whether anything says."""
        return self.same_work or self.grows


def case_of(source: Series, words: Words, table: Reading) -> Case:
    """Of times: an epoch has the same samples at each N; a step with b per worker has N times as many."""
    if source.quantity is Quantity.STEP_TIME:
        local = source.batch_per == "worker" or words.batch_per == "worker" or words.scaling == "weak"
        total = source.batch_per == "total" or words.batch_per == "total" or words.scaling == "strong"
        return Case(total and not local, local and not total)
    if words.grows:
        return Case(False, True)
    if source.quantity is Quantity.EPOCH_TIME:
        return Case(True, False)
    if words.scaling == "weak":
        return Case(False, True)
    return Case(words.scaling == "strong" or words.time_of == "total", False)


def beside(reading: Reading, fact: Fact, *quantities: Quantity) -> list[Fact]:
    """What else the table says of the same: in the same row or column, of the same N, batch and labels."""
    found = [
        other
        for other in reading.of(*quantities)
        if other is not fact
        and (other.place.row == fact.place.row or other.place.column == fact.place.column)
        and _same(fact, other)
    ]
    exact = [other for other in found if other.column_label == fact.column_label]
    return exact or found


def _same(one: Fact, other: Fact) -> bool:
    def agree(mine: int | None, theirs: int | None) -> bool:
        return mine is None or theirs is None or mine == theirs

    return agree(one.n, other.n) and agree(one.batch, other.batch) and one.row_labels == other.row_labels


def samples_of(reading: Reading, fact: Fact, given: int | None = None) -> int | None:
    """Samples of an epoch: as a person says, as the row of a fact says or its data set has, or as the words say."""
    if given is not None:
        return given
    row = [each for each in reading.of(Quantity.SAMPLES) if each.place.row == fact.place.row]
    row = [each for each in row if re.search("train|data|epoch", reading.columns[each.place.column].heading.lower())]
    if len(row) == 1 and row[0].span.mid >= 1:
        return int(row[0].number.value)
    entries = [entry.lower() for entry in reading.table.rows[fact.place.row]]
    named = {data.train for entry in entries if (data := _data_set(entry)) is not None}
    return named.pop() if len(named) == 1 else reading.words.samples


def _data_set(entry: str) -> DataSet | None:
    return next((data for pattern, data in DATA_SETS.items() if re.search(pattern, entry)), None)


_EXTREME = re.compile(
    r"\bp(?:[1-4]?\d|[6-9]\d)(?:\.\d)?\b|\bp999?\b|\b(?:max(?:imum)?|worst|slowest|fastest|best|tail)\b|\d\dth\b"
)


def is_typical(reading: Reading, fact: Fact) -> bool:
    """Whether a time is that of a usual step: not the 99th percentile, not the longest."""
    return _EXTREME.search(reading.columns[fact.place.column].heading.lower().replace("_", " ")) is None


def only(facts: list[Fact]) -> Fact | None:
    """The one that there is; None for none or several."""
    return facts[0] if len(facts) == 1 else None
