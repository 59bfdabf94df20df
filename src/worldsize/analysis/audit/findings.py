"""What an audit finds, and what a rule is."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from worldsize.analysis.audit.facts import Fact, Place, Reading
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.overrides import Overrides


class Verdict(StrEnum):
    """How bad it is, the worst first."""

    FAIL = "FAIL"
    """No reading of the printed numbers fits."""
    SUSPECT = "SUSPECT"
    """It can be, but seldom is."""
    EXPLAIN = "EXPLAIN"
    """It is possible; the cause must be stated, and is not."""
    MISSING = "MISSING"
    """A reader needs it, and it is not there."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, with the cells that show it."""

    rule: str
    verdict: Verdict
    says: str
    """What is wrong, in a sentence."""
    places: tuple[Place, ...] = ()
    """Cells concerned; none where the words around a table are meant."""
    table: int | None = None
    """The table, from 0; None where the whole document is meant."""
    printed: str | None = None
    recomputed: str | None = None
    """What the other numbers give, as an interval."""
    fits: str | None = None
    """The reading that would make the printed numbers right."""
    changes: str | None = None
    """The conclusion that falls."""


@dataclass(frozen=True)
class Checked:
    """What came of one rule over one table: how many numbers held, and what did not."""

    passed: int = 0
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: "Checked") -> "Checked":
        return Checked(self.passed + other.passed, self.findings + other.findings)


@dataclass(frozen=True)
class Page:
    """All tables of a document, which some rules need together."""

    readings: tuple[Reading, ...]
    text: str
    overrides: Overrides = field(default_factory=Overrides)


Check = Callable[[Reading, Page], Checked]


@dataclass(frozen=True)
class Rule:
    """A rule as data: what it is called, what it says when it is broken, and where it comes from."""

    id: str
    title: str
    check: Check
    source: str


def one_finding(
    rule: str,
    verdict: Verdict,
    says: str,
    facts: Sequence[Fact],
    recomputed: str | None = None,
    fits: str | None = None,
    changes: str | None = None,
) -> Checked:
    """One finding over some facts; the first is the doubted number."""
    first = facts[0]
    finding = Finding(rule, verdict, says, places(facts), first.place.table, first.text, recomputed, fits, changes)
    return Checked(0, (finding,))


def together(checks: Iterable[Checked]) -> Checked:
    """All of them as one."""
    return sum(checks, Checked())


def shown(span: Span, digits: int = 3) -> str:
    """An interval as text: one number where both ends print alike."""
    low, middle, high = (_short(value, digits) for value in (span.low, span.mid, span.high))
    return middle if low == high else f"{middle} [{low}, {high}]"


def _short(value: float, digits: int) -> str:
    """To some digits; 11,790 is read at once, 1.179e+04 is not."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if 1e4 <= abs(value) < 1e9 or ("e+" in text and abs(value) < 1e9) else text


def listed(values: Sequence[float], digits: int = 2) -> str:
    """Numbers in a row, as a sentence has them."""
    texts = [f"{value:.{digits}f}" if abs(value) < 100 else f"{value:.0f}" for value in values]
    return ", ".join(texts)


def places(facts: Iterable[Fact]) -> tuple[Place, ...]:
    """Where facts stand."""
    return tuple(dict.fromkeys(fact.place for fact in facts))
