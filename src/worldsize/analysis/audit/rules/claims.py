"""Sentences against the table: "3.8 times faster on 4 GPUs", "92 % efficiency", "scales linearly"."""

import re
from collections.abc import Iterator

from worldsize.analysis.audit.facts import SUMMARY, Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, one_finding, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.rules.claimed_rates import rate_claim
from worldsize.analysis.audit.rules.sentences import NUMBER, RATIOS, Claim, Kind, claims_of, short
from worldsize.analysis.audit.series import Series, case_of, series_of

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
    found = [(rate_claim if claim.kind == "rate" else _claim)(claim, reading) for claim in claims_of(reading)]
    return together([*found, _linear(reading), _within(reading)])


_Ratio = tuple[int, int, Span, Fact]
"""N, N of the base, ratio, where it stands."""


def _claim(claim: Claim, reading: Reading) -> Checked:
    subject, base = _sides(claim.sentence)
    against = _only_label(base, reading)
    if against is None and claim.kind == "over":
        return Checked()  # what it is compared with is not in the table
    values = list(_values(claim.kind, reading) if against is None else _between_rows(claim.kind, reading, against))
    if claim.n is not None:
        values = [(n, base, value, fact) for n, base, value, fact in values if n == claim.n]
    if claim.base is not None:
        # Another base than the one that is named says nothing of the sentence.
        values = [each for each in values if each[1] in (claim.base, each[0])]
        values = [each for each in values if each[1] == claim.base] or ([] if claim.base == 1 else values)
    if not values or (claim.n is None and claim.kind == "efficiency"):
        return Checked()  # it names no N: often one node is meant, or a part
    span = claim.number.span * (0.01 if claim.kind not in RATIOS else 1.0)
    # People round in sentences: half a last digit more to either side.
    room = (span.high - span.low) / 2
    wide = Span(span.low - room, span.high + room)
    usual = _usual(values) if claim.base is None else values
    own, other = _named(subject, usual)
    if any(value.meets(wide) for _, _, value, _ in own):
        return Checked(1)
    if _AVERAGE.search(claim.sentence):
        return _average(claim, own, wide, reading)
    swapped = next((label for label, value in other if value.meets(wide)), None)
    elsewhere = next((b for _, b, value, _ in values if value.meets(wide)), None)
    fits = f"fits with the base of N = {elsewhere}" if elsewhere is not None else None
    if swapped is not None:
        fits = f"fits for “{swapped}”"
    if claim.kind == "less" and any(
        (Span.exact(1) / (Span.exact(1) - value)).meets(wide + Span.exact(1)) for _, _, value, _ in own
    ):
        fits = "fits if the gain in speed is meant, not the time saved"
    verdict = Verdict.FAIL if claim.n is not None and elsewhere is None else Verdict.SUSPECT
    return _other_value(claim, min(own, key=lambda each: abs(each[2].mid - span.mid)), verdict, fits, reading)


def _other_value(claim: Claim, nearest: _Ratio, verdict: Verdict, fits: str | None, reading: Reading) -> Checked:
    """That the table gives another value, the nearest to what the sentence claims."""
    n, _, value, fact = nearest
    shown = f"{value.mid:.3g}" if claim.kind in RATIOS else f"{value.mid:.1%}"
    text = f"“{short(claim.sentence)}”: the table gives {shown} at N = {n}, not {claim.number.text}."
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


_AGAINST = re.compile(r"\b(?:than|over|compared (?:to|with)|relative to|versus|vs\.?|against)\b", re.IGNORECASE)


def _sides(sentence: str) -> tuple[str, str]:
    """What a sentence says before it says with what it compares, and that."""
    found = _AGAINST.search(sentence)
    return (sentence, "") if found is None else (sentence[: found.start()], sentence[found.end() :])


def _only_label(text: str, reading: Reading) -> str | None:
    """The one variant of a table that a text names."""
    found = _labels_in(text, {_label(fact) for fact in reading.of(*TIMES, Quantity.RATE, Quantity.COMMUNICATION)})
    return found.pop() if len(found) == 1 else None


def _labels_in(text: str, labels: set[str]) -> set[str]:
    low = text.lower()
    return {each for each in labels if len(each) > 1 and re.search(rf"(?<![\w-]){re.escape(each)}(?![\w-])", low)}


def _named(subject: str, values: list[_Ratio]) -> tuple[list[_Ratio], list[tuple[str, Span]]]:
    """The values of the one variant that a sentence is of, and those of the others; all where it names none."""
    labels = {_label(fact) for *_, fact in values}
    found = _labels_in(subject, labels)
    if len(labels) < 2 or len(found) != 1:
        return values, []
    own = [each for each in values if _label(each[3]) in found]
    return own, [(_label(fact), value) for _, _, value, fact in values if _label(fact) not in found]


def _label(fact: Fact) -> str:
    return " ".join((*fact.row_labels, fact.column_label)).strip().lower()


_AVERAGE = re.compile(r"\baverag\w*|\bmean\b|\boverall\b", re.IGNORECASE)


def _average(claim: Claim, values: list[_Ratio], wide: Span, reading: Reading) -> Checked:
    """A sentence of the average: that of the values of one N, unless the table prints the average itself."""
    printed = [row for row in reading.table.rows if row and SUMMARY.match(row[0])]
    by_n: dict[int, list[Span]] = {}
    for n, _, value, fact in values:
        if fact.quantity in (Quantity.SPEEDUP, Quantity.EFFICIENCY):
            by_n.setdefault(n, []).append(value)
    means = {n: sum(each.mid for each in spans) / len(spans) for n, spans in by_n.items() if len(spans) > 1}
    if printed or not means:
        return Checked()
    if any(wide.around(mean) for mean in means.values()):
        return Checked(1)
    n = max(means)
    shown = f"{means[n]:.3g}" if claim.kind in RATIOS else f"{means[n]:.1%}"
    text = f"“{short(claim.sentence)}”: the average of the table is {shown} at N = {n}, not {claim.number.text}."
    changes = "The sentence is what readers take with them."
    fact = next(fact for count, _, _, fact in values if count == n)
    return one_finding("claim", Verdict.SUSPECT, text, [fact], shown, None, changes)


def _usual(values: list[_Ratio]) -> list[_Ratio]:
    """What a sentence means that names no base: the least N of the table, or another variant at the same N."""
    least = min(base for _, base, _, _ in values)
    return [each for each in values if each[1] in (least, each[0])]


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


def _between_rows(kind: Kind, reading: Reading, against: str | None = None) -> Iterator[_Ratio]:
    """One variant against another at one N, or against that of one label."""
    if kind == "efficiency":
        return
    for quantity in (*TIMES, Quantity.RATE, Quantity.COMMUNICATION):
        facts = reading.of(quantity)[:60]
        for one in facts:
            for two in facts:
                if one is not two and one.n == two.n and against in (None, _label(one)):
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
    text = f"“{short(found.group(0))}”: at N = {largest} the efficiency is {value.mid:.1%}."
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
    text = f"“{short(found.group(0))}”: at N = {largest} the efficiency is {best[1].mid:.0%}."
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
