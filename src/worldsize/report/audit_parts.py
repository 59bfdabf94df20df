"""What the page and the Markdown of an audit both say: headline, marks of cells, how columns were read, what holds."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from worldsize.analysis.audit.answer import Audit
from worldsize.analysis.audit.columns import Column
from worldsize.analysis.audit.facts import Fact, Place, Reading
from worldsize.analysis.audit.findings import Finding, Rule, Verdict
from worldsize.analysis.audit.quantities import AXES, Quantity
from worldsize.analysis.audit.rules import RULES
from worldsize.analysis.audit.words import Words
from worldsize.analysis.numbers import ABSENT

SIGNS = {Verdict.FAIL: "✗", Verdict.SUSPECT: "?", Verdict.EXPLAIN: "!", Verdict.MISSING: "○"}
"""Stand beside the colour of a verdict, which not everybody sees."""
MEANINGS = {
    Verdict.FAIL: "no reading of the printed numbers fits",
    Verdict.SUSPECT: "it can be, but seldom is",
    Verdict.EXPLAIN: "it is possible; the cause must be stated, and is not",
    Verdict.MISSING: "a reader needs it, and it is not there",
}
MAX_ROWS = 200
"""Of a longer table the first rows and those with a finding are drawn."""
FIRST_ROWS = 20
_TIMES_OF = {"epoch": "times are of an epoch", "step": "times are of a step", "total": "times are of a whole training"}
_BATCH_OF = {"worker": "batches are of one worker", "total": "batches are of all workers together"}
_PER = {"worker": " per worker", "total": " of all workers"}
_PER_WORKER = (Quantity.RATE, Quantity.BATCH)
"""Quantities that are of one worker or of all."""
_SPEEDUPS = {"ratio": "speed-up = T(base) ÷ T(N)", "times_n": "speed-up = N × T(base) ÷ T(N)"}


class Mark(NamedTuple):
    """What stands at a cell: which finding, and how bad it is."""

    number: int
    verdict: Verdict


class ColumnRead(NamedTuple):
    """How a column was read, in words."""

    heading: str
    quantity: str
    unit: str
    of: str


class Held(NamedTuple):
    """One rule over the whole document."""

    rule: Rule
    holds: int
    findings: int


def document_name(audit: Audit) -> str:
    """The file, as a person calls it."""
    return "standard input" if audit.document.name == "-" else audit.document.name


def headline(audit: Audit) -> str:
    """What came of it, in a sentence or two."""
    counts = Counter(finding.verdict for finding in audit.findings)
    holding = sum(sum(each.values()) for each in audit.passed)
    hold = "holds" if holding == 1 else "hold"
    parts = list(_judged(counts))
    if parts:
        text = f"{_joined(parts)}; {holding:,} {hold}."
    else:
        text = f"All {_several(holding, 'check')} {hold}." if holding else "No number could be checked."
    missing = counts[Verdict.MISSING]
    needed = "thing that a reader needs is" if missing == 1 else "things that a reader needs are"
    return f"{text} {missing} {needed} not said." if missing else text


def _judged(counts: Counter[Verdict]) -> Iterator[str]:
    """As in "2 checks fail", "1 is suspect": the first names what is counted."""
    named = False
    for verdict, (one, many) in {
        Verdict.FAIL: ("fails", "fail"),
        Verdict.SUSPECT: ("is suspect", "are suspect"),
        Verdict.EXPLAIN: ("needs an explanation", "need an explanation"),
    }.items():
        count = counts[verdict]
        if count:
            counted = f"{count}" if named else _several(count, "check")
            yield f"{counted} {one if count == 1 else many}"
            named = True


def numbered(audit: Audit) -> list[tuple[int, Finding]]:
    """The findings with the numbers that cells refer to, from 1."""
    return list(enumerate(audit.findings, start=1))


def marks(audit: Audit) -> dict[Place, list[Mark]]:
    """For each cell that a finding is about: which ones, the worst first."""
    found: dict[Place, list[Mark]] = {}
    for number, finding in numbered(audit):
        for place in finding.places:
            found.setdefault(place, []).append(Mark(number, finding.verdict))
    return found


def table_title(reading: Reading) -> str:
    """Its caption, which begins with its number as a rule."""
    caption = " ".join((reading.words.caption or reading.table.caption).split())
    if caption.lower().startswith("table"):
        return caption
    return f"Table {reading.index + 1}: {caption}" if caption else f"Table {reading.index + 1}"


def rows_drawn(reading: Reading, marked: Iterable[Place]) -> list[int]:
    """Rows that people see: all, or of a long table the first and those with a finding."""
    count = len(reading.table.rows)
    if count <= MAX_ROWS:
        return list(range(count))
    return sorted({*range(FIRST_ROWS), *(place.row for place in marked if 0 <= place.row < count)})


def left_out(reading: Reading, drawn: list[int]) -> str:
    """What is said where rows are not drawn; nothing where all are."""
    count = len(reading.table.rows)
    return f"{len(drawn):,} of {count:,} rows; the others have no finding." if len(drawn) < count else ""


class ColumnPlaces(NamedTuple):
    """Cells of one column that a finding is about."""

    table: int
    """From 0."""
    heading: str
    places: list[Place]
    texts: list[str]


def places_by_column(finding: Finding, audit: Audit) -> list[ColumnPlaces]:
    """The cells of a finding, column by column, each from the top; not those of tables that are not shown."""
    readings = {reading.index: reading for reading in audit.readings}
    found: dict[tuple[int, str], ColumnPlaces] = {}
    for place in sorted(finding.places):
        reading = readings.get(place.table)
        if reading is not None:
            name = heading(reading, place.column)
            column = found.setdefault((place.table, name), ColumnPlaces(place.table, name, [], []))
            column.places.append(place)
            column.texts.append(entry(reading, place))
    return list(found.values())


def heading(reading: Reading, column: int) -> str:
    """The heading of a column, or its number where it has none."""
    name = reading.columns[column].heading if column < len(reading.columns) else ""
    return name or f"column {column + 1}"


def entry(reading: Reading, place: Place) -> str:
    """What is printed in a cell; row −1 is the heading."""
    if place.row < 0:
        return heading(reading, place.column)
    row = reading.table.rows[place.row] if place.row < len(reading.table.rows) else ()
    return row[place.column] if place.column < len(row) else ""


def columns_read(reading: Reading) -> list[ColumnRead]:
    """How each column was read."""
    facts: dict[int, list[Fact]] = {}
    for fact in reading.facts:
        facts.setdefault(fact.place.column, []).append(fact)
    return [
        _column(heading(reading, place), column, facts.get(place, [])) for place, column in enumerate(reading.columns)
    ]


def _column(name: str, column: Column, facts: list[Fact]) -> ColumnRead:
    said = column.meaning
    if column.label:
        return ColumnRead(name, "names the rows", ABSENT, ABSENT)
    quantities = dict.fromkeys(str(fact.quantity) for fact in facts)
    quantity = ", ".join(quantities) or (str(said.quantity) if said.quantity else "not understood")
    units = dict.fromkeys(fact.unit.name for fact in facts if fact.unit)
    of = [
        f"N = {said.n}" if said.n is not None else "",
        f"nodes = {said.nodes}" if said.nodes is not None else "",
        f"b = {said.batch:,}{_PER.get(said.batch_per or '', '')}" if said.batch is not None else "",
        _PER.get(said.per or "", "").strip() if said.quantity in _PER_WORKER else "",
        "N is not known" if facts and all(fact.n is None and fact.quantity not in AXES for fact in facts) else "",
    ]
    return ColumnRead(name, quantity, ", ".join(units) or ABSENT, ", ".join(filter(None, of)) or ABSENT)


def words_read(words: Words) -> list[str]:
    """What the words around a table say of it."""
    said = [
        f"{words.samples:,} samples" if words.samples else "",
        f"{words.test_samples:,} test samples" if words.test_samples else "",
        f"{words.classes:,} classes" if words.classes else "",
        words.network or "",
        f"{words.parameters.text} parameters" if words.parameters else "",
        f"{words.element_bytes} bytes an element" if words.element_bytes else "",
        f"{words.accumulation} steps accumulated" if words.accumulation else "",
        _TIMES_OF.get(words.time_of or "", ""),
        _BATCH_OF.get(words.batch_per or "", ""),
        f"{words.scaling} scaling" if words.scaling else "",
        "the data grow with the workers" if words.grows else "",
        _SPEEDUPS.get(words.speedup or "", ""),
        f"N = {words.workers} throughout" if words.workers else "",
        "communication overlaps" if words.overlap else "",
    ]
    return [each for each in said if each]


def checks(audit: Audit) -> list[Held]:
    """All rules in their order: how many checks of each hold, and how many findings it has."""
    holds: Counter[str] = Counter()
    for each in audit.passed:
        holds.update(each)
    found = Counter(rule_of(finding) for finding in audit.findings)
    return [Held(rule, holds[rule.id], found[rule]) for rule in RULES]


def rule_of(finding: Finding) -> Rule | None:
    """The rule of a finding: that of "missing-batch" is "missing"."""
    ids = (finding.rule, finding.rule.partition("-")[0])
    return next((rule for name in ids for rule in RULES if rule.id == name), None)


def _several(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _joined(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
