"""How a ratio over N may have been computed: the right ways, and the wrong ones that people take (method.md §16)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from worldsize.analysis.audit.facts import Reading
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.series import Case, Series, case_of, partners, series_of
from worldsize.analysis.audit.words import Words

Kind = Literal["right", "explain", "wrong"]
Value = Callable[[int], Span | None]

MAX_BASES = 32
"""So many N are tried as another base: a table of 1,500 rows took 2 minutes with all."""


@dataclass(frozen=True)
class Way:
    """One way to compute a number of N workers from the others of a table."""

    kind: Kind
    says: str
    """As in "fits if …"."""
    value: Value
    source: Series
    cause: str = ""
    """Of "explain": what must be stated. Of "wrong": what went wrong."""
    absolute: bool = False
    """It needs no base, so it holds for the base as well."""
    across: bool = False
    """It compares two variants, so it excuses numbers and accuses none."""


def speedup_ways(target: Series, table: Reading, others: Sequence[Reading] = ()) -> Iterator[Way]:
    """All ways in which a speed-up may have been computed, the right ones first."""
    sources = _sources(target, table, others)
    for source in sources:
        if source.quantity is Quantity.RATE:
            yield from _from_rates(source, table)
        else:
            yield from _from_times(source, table.words, case_of(source, table.words, table))
    for source in sources:
        yield from _other_bases(source, target, table)
    for source in sources:
        yield from _across(source, table)


def efficiency_ways(target: Series, table: Reading, others: Sequence[Reading] = ()) -> Iterator[Way]:
    """All ways in which an efficiency may have been computed."""
    for source in _sources(target, table, others):
        if source.quantity is Quantity.RATE:
            yield from _efficiency_from_rates(source)
        else:
            yield from _efficiency_from_times(source, case_of(source, table.words, table))
    for source in partners(target, series_of(table, Quantity.SPEEDUP)):
        yield from _efficiency_from_speedups(source, table)


def _efficiency_from_speedups(s: Series, table: Reading) -> Iterator[Way]:
    def way(kind: Kind, says: str, function: Callable[[Span, int], Span], cause: str = "") -> Way:
        return Way(kind, says, lambda n: function(_at(s, n), n), s, cause)

    yield replace(way("right", "speed-up ÷ N", lambda span, n: span / n), absolute=True)
    if s.base > 1 and s.by_n[s.base].span.around(1):
        yield way("right", "speed-up ÷ (N ÷ N of the base)", lambda span, n: span / (n / s.base))
    if s.base not in s.by_n or len(s.by_n) == 1:  # of "8 GPUs, 64 GPUs, Speedup, Efficiency": 8 may be the base
        for k in sorted({fact.n for fact in table.of(*TIMES, Quantity.RATE) if fact.n and 1 < fact.n < s.base}):
            yield replace(way("right", f"speed-up ÷ (N ÷ {k})", partial(_per, k)), absolute=True)
    yield way("wrong", "the speed-up, not divided by N", lambda span, n: span, "It is the speed-up again.")
    yield way("wrong", "speed-up ÷ (N − 1)", lambda span, n: span / max(1, n - 1), "The base is one of the N workers.")
    yield way("wrong", "N ÷ speed-up", lambda span, n: Span.exact(n) / span, "The ratio stands upside down.")


def _per(base: int, span: Span, n: int) -> Span:
    return span / (n / base)


def _sources(target: Series, table: Reading, others: Sequence[Reading]) -> list[Series]:
    times = partners(target, series_of(table, *TIMES))
    rates = partners(target, series_of(table, Quantity.RATE))
    if times or rates:
        return times + rates
    for other in others:  # the times may stand in a table of their own, under the same names
        found = [each for each in partners(target, series_of(other, *TIMES, Quantity.RATE)) if each.name == target.name]
        if len(found) == 1 and found[0].by_n.keys() >= target.by_n.keys():
            return found
    return []


def _at(series: Series, n: int) -> Span:
    return series.by_n[n].span


def _from_times(s: Series, words: Words, case: Case) -> Iterator[Way]:
    b = s.base

    def plain(n: int) -> Span | None:
        return _at(s, b) / _at(s, n)

    def scaled(n: int) -> Span | None:
        return _at(s, b) / _at(s, n) * (n / b)

    def counted(n: int) -> Span | None:
        return _at(s, b) / _at(s, n) * n

    twice = "The time is of the same samples at every N, so T(base) ÷ T(N) is the speed-up already."
    each = "The time is of a step in which each worker has b samples; without N this is the efficiency."
    if case.grows:
        yield Way("right", f"N × T({b}) ÷ T(N)", scaled, s)
        yield Way("explain", f"T({b}) ÷ T(N)", plain, s, each)
    elif case.same_work:
        yield Way("right", f"T({b}) ÷ T(N)", plain, s)
        yield Way("wrong", f"N × T({b}) ÷ T(N), which counts N twice", scaled, s, twice)
    else:
        yield Way("right", f"T({b}) ÷ T(N)", plain, s)
        yield Way(
            "explain",
            f"N × T({b}) ÷ T(N)",
            scaled,
            s,
            "Right only where the work grows with N, as a step of b per worker; else N is counted twice.",
        )
    if b > 1:
        yield Way("right", f"{b} × T({b}) ÷ T(N), the base taken for {b}", lambda n: _at(s, b) / _at(s, n) * b, s)
        if case.grows:
            yield Way("right", f"N × T({b}) ÷ T(N)", counted, s)
    yield Way(
        "wrong", f"T(N) ÷ T({b}), upside down", lambda n: _at(s, n) / _at(s, b), s, "The ratio stands upside down."
    )
    yield Way(
        "explain",
        f"T({b}) ÷ T(N) − 1",
        lambda n: _at(s, b) / _at(s, n) - Span.exact(1),
        s,
        "It is the gain over the base, not the speed-up.",
    )


def _from_rates(s: Series, table: Reading) -> Iterator[Way]:
    b = s.base

    def plain(n: int) -> Span | None:
        return _at(s, n) / _at(s, b)

    def scaled(n: int) -> Span | None:
        return _at(s, n) / _at(s, b) * (n / b)

    twice = "The throughput is of all workers together."
    if s.per == "worker":
        yield Way("right", f"N × rate(N) ÷ rate({b})", scaled, s)
        yield Way(
            "explain", f"rate(N) ÷ rate({b})", plain, s, "The rate is of one worker; without N this is the efficiency."
        )
    else:
        yield Way("right", f"rate(N) ÷ rate({b})", plain, s)
        each = any(fact.per == "worker" for fact in table.of(Quantity.RATE))
        if s.per == "total" or each or table.words.scaling is not None:
            yield Way("wrong", f"N × rate(N) ÷ rate({b}), which counts N twice", scaled, s, twice)
        else:
            yield Way("explain", f"N × rate(N) ÷ rate({b})", scaled, s, "Right only where the rate is of one worker.")
    if b > 1:
        yield Way("right", f"{b} × rate(N) ÷ rate({b}), the base taken for {b}", lambda n: _at(s, n) / _at(s, b) * b, s)
    yield Way(
        "wrong",
        f"rate({b}) ÷ rate(N), upside down",
        lambda n: _at(s, b) / _at(s, n),
        s,
        "The ratio stands upside down.",
    )
    yield Way(
        "wrong",
        f"rate(N) ÷ (N × rate({b}))",
        lambda n: _at(s, n) / _at(s, b) / (n / b),
        s,
        "This is the efficiency, not the speed-up.",
    )


def _other_bases(s: Series, target: Series, table: Reading) -> Iterator[Way]:
    """The base of another row or column, where this one's own base is there as well."""
    rate = s.quantity is Quantity.RATE
    for k in sorted(s.by_n)[:MAX_BASES]:
        if k != s.base and not target.by_n.get(k, s.by_n[k]).span.around(1):
            says = f"The base is that of N = {k}, not of N = {s.base}."
            shows = s.base in target.by_n
            yield Way("wrong" if shows else "explain", f"base of N = {k}", _ratio(s, _at(s, k), rate), s, says)
    for other in series_of(table, s.quantity):
        if (
            other is not s
            and other.per == s.per
            and s.base in other.by_n
            and other.by_n[s.base].place != s.by_n[s.base].place
        ):
            name = other.name or "another column"
            own = other.batch != s.batch
            yield Way(
                "wrong" if own else "explain",
                f"base of {name}",
                _ratio(s, _at(other, s.base), rate),
                s,
                f"The base is that of {name}, whose batch is another."
                if own
                else f"The base is that of {name}; say so.",
            )


def _ratio(s: Series, base: Span, rate: bool) -> Value:
    return lambda n: _at(s, n) / base if rate else base / _at(s, n)


def _across(s: Series, table: Reading) -> Iterator[Way]:
    """One variant against another at the same N: a speed-up by precision, by framework, by strategy."""
    for other in series_of(table, s.quantity):
        if other.by_n.keys() >= s.by_n.keys() and other.name != s.name and other.per == s.per:
            for one, two in ((s, other), (other, s)):
                yield Way(
                    "right", f"against {other.name} at the same N", _quotient(one, two), s, absolute=True, across=True
                )


def _quotient(one: Series, two: Series) -> Value:
    """How much faster one is than the other."""
    rate = one.quantity is Quantity.RATE
    return lambda n: _at(one, n) / _at(two, n) if rate else _at(two, n) / _at(one, n)


def _efficiency_from_times(s: Series, case: Case) -> Iterator[Way]:
    b = s.base

    def strong(n: int) -> Span | None:
        return _at(s, b) / _at(s, n) / (n / b)

    def weak(n: int) -> Span | None:
        return _at(s, b) / _at(s, n)

    if case.grows:
        yield Way("right", f"T({b}) ÷ T(N)", weak, s)
        yield Way(
            "wrong", f"T({b}) ÷ (N × T(N))", strong, s, "The work grows with N, so N stands in the times already."
        )
    else:
        yield Way("right", f"T({b}) ÷ (N × T(N))", strong, s)
        if case.same_work:
            yield Way(
                "wrong",
                f"T({b}) ÷ T(N), not divided by N",
                weak,
                s,
                "For the same samples this is the speed-up; the efficiency is that ÷ N.",
            )
        else:
            yield Way("right", f"T({b}) ÷ T(N)", weak, s)
    saved = "It is the share of time that is saved."
    yield Way("wrong", f"1 − T(N) ÷ T({b})", lambda n: Span.exact(1) - _at(s, n) / _at(s, b), s, saved)
    yield Way(
        "wrong", f"T(N) ÷ T({b}), upside down", lambda n: _at(s, n) / _at(s, b), s, "The ratio stands upside down."
    )


def _efficiency_from_rates(s: Series) -> Iterator[Way]:
    b = s.base
    whole: Way = Way("right", f"rate(N) ÷ (N × rate({b}))", lambda n: _at(s, n) / _at(s, b) / (n / b), s)
    each: Way = Way("right", f"rate(N) ÷ rate({b})", lambda n: _at(s, n) / _at(s, b), s)
    if s.per == "worker":
        yield each
        yield Way("wrong", whole.says, whole.value, s, "The rate is of one worker, so it is divided by N twice.")
    else:
        yield whole
        yield Way(
            "wrong",
            f"{each.says}, not divided by N",
            each.value,
            s,
            "This is the speed-up; the efficiency is that ÷ N.",
        )
