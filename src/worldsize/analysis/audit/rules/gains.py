"""Gains of one column over another, or of each row over one: most rows say how they were computed."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding, shown, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import PARTS, TIMES, Quantity
from worldsize.analysis.audit.rules.ratios import check_speedup, right_columns

ENOUGH = 2
"""So many rows must fit one way, and twice as many as do not, before another row is wrong."""
TELLING = 0.1
"""A ratio whose last digit is worth more than this share of it fits by chance: "2×"."""
_SOURCES = (*TIMES, *PARTS, Quantity.RATE)
_ONE = Span.exact(1)
_RATIO: tuple[tuple[str, Callable[[Span, Span], Span]], ...] = (("{} ÷ {}", lambda one, two: one / two),)
_GAIN = (
    *_RATIO,
    ("{} ÷ {} − 1", lambda one, two: one / two - _ONE),
    ("1 − {} ÷ {}", lambda one, two: _ONE - one / two),
)


@dataclass(frozen=True)
class _Way:
    says: str
    """As in "Baseline (ms) ÷ Ours (ms)"."""
    values: dict[int, Span]
    """By row."""
    sources: dict[int, Fact]

    def fits(self, column: dict[int, Fact]) -> list[int]:
        return [row for row in self.asked(column) if self.values[row].meets(column[row].span)]

    def asked(self, column: dict[int, Fact]) -> list[int]:
        return [row for row in column if row in self.values]


def check_gains(reading: Reading, page: Page) -> Checked:
    """A ratio of two columns, or of each row to one, is computed alike in each row."""
    known = {place.column for finding in check_speedup(reading, page).findings for place in finding.places}
    known |= right_columns(reading, page)
    found = []
    for index, column in _columns(reading, Quantity.SPEEDUP, Quantity.GAIN).items():
        if index not in known:
            found.append(_judge(column, list(_ways(reading, column))))
    return together(found)


def _columns(reading: Reading, *quantities: Quantity) -> dict[int, dict[int, Fact]]:
    """The facts of some quantities by column and row; of a cell with two numbers the first."""
    found: dict[int, dict[int, Fact]] = defaultdict(dict)
    for fact in reading.of(*quantities):
        found[fact.place.column].setdefault(fact.place.row, fact)
    return found


def _ways(reading: Reading, column: dict[int, Fact]) -> Iterator[_Way]:
    some = next(iter(column.values()))
    percent = some.unit is not None and some.unit.kind == "percent"
    forms = _GAIN if some.quantity is Quantity.GAIN or percent else _RATIO
    for quantity in _SOURCES:
        columns = _columns(reading, quantity)
        for one, left in columns.items():
            heading = reading.columns[one].heading
            for two, right in columns.items():
                if one != two:
                    yield from _of_columns(forms, (heading, reading.columns[two].heading), left, right)
            if some.quantity is Quantity.GAIN or all(fact.n is None for fact in column.values()):
                yield from _of_rows(forms, heading, left, reading)


def _of_columns(
    forms: tuple[tuple[str, Callable[[Span, Span], Span]], ...],
    headings: tuple[str, str],
    left: dict[int, Fact],
    right: dict[int, Fact],
) -> Iterator[_Way]:
    rows = [row for row in left if row in right]
    for says, form in forms:
        yield _Way(says.format(*headings), {row: form(left[row].span, right[row].span) for row in rows}, left)


def _of_rows(
    forms: tuple[tuple[str, Callable[[Span, Span], Span]], ...],
    heading: str,
    column: dict[int, Fact],
    reading: Reading,
) -> Iterator[_Way]:
    """Each row against the first, or against the last; that a base prints 1 says which is the base."""
    for base in {min(column), max(column)}:
        name = f"that of “{reading.table.rows[base][0]}”"
        for says, form in forms:
            one = {row: form(fact.span, column[base].span) for row, fact in column.items()}
            yield _Way(says.format(heading, name), one, column)
            two = {row: form(column[base].span, fact.span) for row, fact in column.items()}
            yield _Way(says.format(name, heading), two, column)


def _judge(column: dict[int, Fact], ways: list[_Way]) -> Checked:
    best = max(ways, key=lambda way: len(way.fits(column)), default=None)
    if best is None:
        return Checked()
    fits = best.fits(column)
    odd = [row for row in best.asked(column) if row not in fits]
    telling = [row for row in fits if _sharp(column[row])]
    if len(telling) < ENOUGH or 2 * len(odd) > len(fits):
        return Checked()
    return together([Checked(len(fits)), *(_odd(column[row], row, best, ways) for row in odd)])


def _sharp(fact: Fact) -> bool:
    return fact.span.high - fact.span.low <= TELLING * abs(fact.span.mid)


def _odd(fact: Fact, row: int, best: _Way, ways: list[_Way]) -> Checked:
    value = best.values[row]
    scale, sign = (100.0, " %") if fact.unit is not None and fact.unit.kind == "percent" else (1.0, "")
    other = next((way for way in ways if row in way.values and way.values[row].meets(fact.span)), None)
    return one_finding(
        "gain",
        Verdict.FAIL,
        f"{fact.text} is printed; {best.says} gives {shown(value * scale)}{sign}, as in the other rows.",
        [fact, best.sources[row]],
        f"{best.says} = {shown(value * scale)}{sign}",
        f"fits if computed as {other.says}" if other is not None else None,
        f"What is gained is {shown(value * scale)}{sign}, not {fact.text}.",
    )


RULES = (Rule("gain", "Gains over another column or row follow from both", check_gains, "arithmetic"),)
"""Last of the ratios: only where nothing else says what a speed-up is of."""
