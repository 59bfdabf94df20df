"""Sentences against the table: "3.8 times faster on 4 GPUs", "92 % efficiency", "scales linearly"."""

import re
from collections.abc import Iterator

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.readings import case_of
from worldsize.analysis.audit.rules.sentences import NUMBER, RATIOS, Claim, Kind, claims_of
from worldsize.analysis.audit.series import Series, series_of

LINEAR = 0.9
"""An efficiency below this at the largest N is not linear …"""
NEARLY = 0.75
"""… and below this not nearly so."""

_LINEARLY = re.compile(
    r"\b(?P<near>near(?:ly)?[- ]|almost |close to |sub-?)?(?:linear(?:ly)?|perfect(?:ly)?)[ -](?:scal\w+|speed-?\s?up)|scal\w+ (?P<near2>near(?:ly)?[- ]|almost |sub-?)?(?:linear|perfect)ly",
    re.IGNORECASE,
)


def check_claims(reading: Reading, page: Page) -> Checked:
    """Each ratio and each rate of a sentence is one that the table gives."""
    found = [(_rate if claim.kind == "rate" else _claim)(claim, reading) for claim in claims_of(reading)]
    return together([*found, _linear(reading), _within(reading)])


_Ratio = tuple[int, int, Span, Fact]
"""N, N of the base, ratio, where it stands."""


def _claim(claim: Claim, reading: Reading) -> Checked:
    values = list(_values(claim.kind, reading))
    if claim.n is not None:
        values = [(n, base, value, fact) for n, base, value, fact in values if n == claim.n]
    if claim.base is not None:
        values = [each for each in values if each[1] == claim.base] or values
    if not values or (claim.n is None and claim.kind == "efficiency"):
        return Checked()  # it names no N: often one node is meant, or a part
    span = claim.number.span * (0.01 if claim.kind not in RATIOS else 1.0)
    # People round in sentences: half a last digit more to either side.
    room = (span.high - span.low) / 2
    wide = Span(span.low - room, span.high + room)
    usual = _usual(values) if claim.base is None else values
    if any(value.meets(wide) for _, _, value, _ in usual):
        return Checked(1)
    elsewhere = next((b for _, b, value, _ in values if value.meets(wide)), None)
    best = min(usual, key=lambda each: abs(each[2].mid - span.mid))
    value, fact = best[2], best[3]
    shown = f"{value.mid:.3g}" if claim.kind in RATIOS else f"{value.mid:.1%}"
    text = f"“{_short(claim.sentence)}”: the table gives {shown} at N = {best[0]}, not {claim.number.text}."
    fits = f"fits with the base of N = {elsewhere}" if elsewhere is not None else None
    if claim.kind == "less" and any(
        (Span.exact(1) / (Span.exact(1) - value)).meets(wide + Span.exact(1)) for _, _, value, _ in usual
    ):
        fits = "fits if the gain in speed is meant, not the time saved"
    verdict = Verdict.FAIL if claim.n is not None and elsewhere is None else Verdict.SUSPECT
    return Checked(
        0,
        (
            Finding(
                "claim",
                verdict,
                text,
                (fact.place,),
                reading.index,
                claim.number.text,
                shown,
                fits,
                "The sentence is what readers take with them.",
            ),
        ),
    )


def _rate(claim: Claim, reading: Reading) -> Checked:
    """A rate at N that the table does not have; it may be of another run, so it is only suspect."""
    facts = [fact for fact in reading.of(Quantity.RATE) if fact.n == claim.n]
    room = (claim.number.span.high - claim.number.span.low) / 2
    wide = Span(claim.number.span.low - room, claim.number.span.high + room)
    n = float(claim.n or 1)
    if not facts or claim.n is None:
        return Checked()
    if any((fact.span * factor).meets(wide) for fact in facts for factor in (1.0, n, 1 / n)):
        return Checked(1)
    best = min(facts, key=lambda fact: abs(fact.span.mid - wide.mid))
    text = f"“{_short(claim.sentence)}”: the table has {best.text} at N = {claim.n}, not {claim.number.text}."
    changes = "The sentence is what readers take with them."
    return Checked(
        0,
        (
            Finding(
                "claim",
                Verdict.SUSPECT,
                text,
                (best.place,),
                reading.index,
                claim.number.text,
                best.text,
                None,
                changes,
            ),
        ),
    )


def _usual(values: list[_Ratio]) -> list[_Ratio]:
    """What a sentence means that names no base: the least N of the table, or another variant at the same N."""
    least = min(base for _, base, _, _ in values)
    return [each for each in values if each[1] in (least, each[0])]


def _short(sentence: str) -> str:
    return sentence if len(sentence) <= 90 else f"{sentence[:87]}…"


def _values(kind: Kind, reading: Reading) -> Iterator[tuple[int, int, Span, Fact]]:
    """(N, N of the base, ratio, where): printed ones, and those of times and rates, of every pair of N."""
    wanted = {"speed-up": Quantity.SPEEDUP, "throughput": Quantity.SPEEDUP, "efficiency": Quantity.EFFICIENCY}.get(kind)
    for fact in reading.of(wanted) if wanted else []:
        if fact.n is not None:
            yield fact.n, 1, fact.span, fact
    for series in series_of(reading, *TIMES, Quantity.RATE):
        for b in sorted(series.by_n):
            for n in sorted(series.by_n):
                if n > b:
                    yield from ((n, b, value, series.by_n[n]) for value in _ratios(kind, series, b, n, reading))
    yield from _between_rows(kind, reading)


def _ratios(kind: Kind, series: Series, b: int, n: int, reading: Reading) -> Iterator[Span]:
    """What N workers are to the base, in all senses that the words leave open."""
    rate = series.quantity is Quantity.RATE
    case = case_of(series, reading.words, reading)
    grows = series.per == "worker" if rate else case.grows or (kind == "throughput" and not case.known)
    base, many = series.by_n[b].span, series.by_n[n].span
    ratio = many / base if rate else base / many
    for speedup in [ratio * (n / b), ratio] if grows else [ratio]:
        if kind in RATIOS:
            yield from (speedup, speedup * b)  # a base of b workers counts as b
        elif kind == "efficiency":
            yield speedup / (n / b)
        else:
            yield _gain(kind, speedup)


def _gain(kind: Kind, speedup: Span) -> Span:
    """A ratio as a sentence puts it: the share of time saved, or how much faster or slower."""
    if kind == "less":
        return Span.exact(1) - Span.exact(1) / speedup
    return speedup - Span.exact(1) if kind == "faster" else Span.exact(1) / speedup - Span.exact(1)


def _between_rows(kind: Kind, reading: Reading) -> Iterator[tuple[int, int, Span, Fact]]:
    """One variant against another at one N."""
    if kind == "efficiency":
        return
    for quantity in (*TIMES, Quantity.RATE, Quantity.COMMUNICATION):
        facts = reading.of(quantity)[:60]
        for one in facts:
            for two in facts:
                if one is not two and one.n == two.n:
                    ratio = two.span / one.span if quantity is Quantity.RATE else one.span / two.span
                    value = ratio if kind in RATIOS else _gain(kind, ratio)
                    yield one.n or 1, one.n or 1, value, two


_WITHIN = re.compile(rf"within {NUMBER}\s*(?:%|percent) of (?:the )?(?:linear|ideal|perfect)", re.IGNORECASE)


def _within(reading: Reading) -> Checked:
    """Whether "within 5 % of linear" holds at the largest N."""
    found = _WITHIN.search(reading.words.own)
    values = [(n, value, fact) for n, _, value, fact in _values("efficiency", reading)] if found else []
    if found is None or not values:
        return Checked()
    largest = max(n for n, _, _ in values)
    _, value, fact = max((each for each in values if each[0] == largest), key=lambda each: each[1].mid)
    if value.high >= 1 - float(found[1]) / 100 - 0.005:
        return Checked(1)
    text = f"“{_short(found.group(0))}”: at N = {largest} the efficiency is {value.mid:.1%}."
    changes = "The sentence is what readers take with them."
    shown = f"{value.mid:.1%}"
    return Checked(
        0, (Finding("claim", Verdict.FAIL, text, (fact.place,), reading.index, found.group(0), shown, None, changes),)
    )


def _linear(reading: Reading) -> Checked:
    """Whether "scales linearly" stands over a table that does not."""
    found = next((match for match in _LINEARLY.finditer(reading.words.own)), None)
    if found is None or re.search(
        r"(?:not|far from|less than|below|ideal|compared (?:to|with)|than)\W+(?:\w+\W+){0,2}$",
        reading.words.own[: found.start()],
        re.IGNORECASE,
    ):
        return Checked()
    near = found["near"] or found["near2"]
    if near and near.lower().startswith("sub"):
        return Checked()
    values = [
        (n, value, fact)
        for n, base, value, fact in _values("efficiency", reading)
        if base == min(s.base for s in series_of(reading, *TIMES, Quantity.RATE, Quantity.EFFICIENCY, Quantity.SPEEDUP))
    ]
    values += [(fact.n or 1, fact.span / float(fact.n or 1), fact) for fact in reading.of(Quantity.SPEEDUP) if fact.n]
    if not values:
        return Checked()
    largest = max(n for n, _, _ in values)
    best = max((each for each in values if each[0] == largest), key=lambda each: each[1].mid)
    limit = NEARLY if near else LINEAR
    if best[1].high >= limit:
        return Checked(1)
    text = f"“{_short(found.group(0))}”: at N = {largest} the efficiency is {best[1].mid:.0%}."
    return Checked(
        0,
        (
            Finding(
                "claim",
                Verdict.FAIL if best[1].high < limit - 0.1 else Verdict.SUSPECT,
                text,
                (best[2].place,),
                reading.index,
                found.group(0),
                f"{best[1].mid:.0%}",
                None,
                f"{largest} workers do the work of {best[1].mid * largest:.2g}.",
            ),
        ),
    )


RULES = (Rule("claim", "Sentences say what the table says", check_claims, "statcheck (Nuijten et al., 2016)"),)
