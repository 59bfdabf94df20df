"""Speed-up and efficiency: do they follow from the times or rates beside them, and by which definition?"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, listed, places, shown, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.readings import Way, efficiency_ways, speedup_ways
from worldsize.analysis.audit.rules.one_base import without_base
from worldsize.analysis.audit.series import Series, series_of

Changes = Callable[[Series, dict[int, Span]], str]
VAGUE = 0.1
"""Width of what a way gives, over its value, from which on it says little beside a printed speed-up ÷ N."""


def check_speedup(reading: Reading, page: Page) -> Checked:
    """Each printed speed-up against all ways to compute it."""
    asked = [
        (target, _named(list(speedup_ways(target, reading, page.readings)), target, reading))
        for target in series_of(reading, Quantity.SPEEDUP)
    ]
    return _all("speedup", asked, _speedup_changes)


def right_columns(reading: Reading, page: Page) -> set[int]:
    """The columns of speed-ups that are right by a definition over N."""
    return {
        fact.place.column
        for target in series_of(reading, Quantity.SPEEDUP)
        if _holds(target, list(speedup_ways(target, reading, page.readings)))
        for fact in target.facts()
    }


def check_efficiency(reading: Reading, page: Page) -> Checked:
    """Each printed efficiency against all ways to compute it."""
    asked = [
        (target, list(efficiency_ways(target, reading, page.readings)))
        for target in series_of(reading, Quantity.EFFICIENCY)
    ]
    return _all("efficiency", asked, _efficiency_changes)


def _all(rule: str, asked: list[tuple[Series, list[Way]]], changes: Changes) -> Checked:
    """Of series that print no base, as a row "A, 1 GPU, 8 GPUs, Speedup", most say for all how it is computed."""
    held = [_holds(target, ways) for target, ways in asked if not _prints_base(target, ways)]
    vouched = sum(held) > max(1, len(held) / 2)
    return _merged(together([_judge(rule, target, ways, changes, vouched) for target, ways in asked]))


def _prints_base(target: Series, ways: list[Way]) -> bool:
    return any(not way.absolute and way.source.base in target.by_n for way in ways)


def _holds(target: Series, ways: list[Way]) -> bool:
    return any(way.kind == "right" and not way.across and _fit(target, way).all for way in ways)


def _named(ways: list[Way], target: Series, reading: Reading) -> list[Way]:
    """Under "scaling" an efficiency is meant as often as a speed-up."""
    heading = " ".join(reading.columns[fact.place.column].heading.lower() for fact in target.facts())
    if "speed" in heading or "scal" not in heading:
        return ways
    return [replace(way, kind="right") if "efficiency" in way.cause else way for way in ways]


def _merged(checked: Checked) -> Checked:
    """Columns that are wrong in the same way are one finding."""
    alike: dict[tuple[str, str | None], list[Finding]] = {}
    for finding in checked.findings:
        alike.setdefault((finding.says, finding.fits), []).append(finding)
    merged = []
    for group in alike.values():
        first = group[0]
        if len(group) > 1:
            first = replace(
                first,
                places=tuple(dict.fromkeys(place for each in group for place in each.places)),
                printed="; ".join(each.printed for each in group if each.printed),
                recomputed="; ".join(each.recomputed for each in group if each.recomputed),
                changes=" ".join(dict.fromkeys(each.changes for each in group if each.changes)) or None,
            )
        merged.append(first)
    return Checked(checked.passed, tuple(merged))


@dataclass(frozen=True)
class _Fit:
    way: Way
    asked: tuple[int, ...]
    fits: tuple[int, ...]

    @property
    def all(self) -> bool:
        return bool(self.asked) and self.fits == self.asked


def _judge(rule: str, target: Series, ways: list[Way], changes: Changes, vouched: bool) -> Checked:
    """PASS where a right way fits all; else the wrong way that does; else the cells that fit none.

    `vouched`: other series of the table say from which base all start.
    """
    fits = [each for way in ways if (each := _fit(target, way)).asked]
    if not fits:
        return Checked()
    right = [each for each in fits if each.way.kind == "right"]
    if rule == "efficiency":
        right = _sharp(right)
    held = [(each, without_base(target, each.way, each.asked)) for each in right if each.all]
    if any(not odd for _, odd in held):
        return Checked(max(len(each.asked) for each, odd in held if not odd))
    if held:
        return _no_base(rule, target, *held[0])
    for each in fits:
        if each.all and _telling(each, right):
            return _whole(rule, target, each, right, changes)
    # Of ways that fit as many, one whose base is there, or that needs none: an efficiency is a printed speed-up ÷ N.
    own = [each for each in right if not each.way.across]
    best = max(own, key=lambda each: (len(each.fits), _based(target, each)), default=None)
    if best is None or not (vouched or _based(target, best)):
        return Checked()
    return _cells(rule, target, best, fits, vouched)


def _sharp(right: list[_Fit]) -> list[_Fit]:
    """Without the vague ones where a printed speed-up ÷ N is not: of 100 and 125 ms, 100 may be 90 to 110."""
    sharp = [each for each in right if not _is_vague(each)]
    return sharp if any(each.way.absolute for each in sharp) else right


def _is_vague(found: _Fit) -> bool:
    base = found.way.source.base  # its own 1.0 may be 0.95 to 1.1, and says nothing of the others
    values = [value for n in found.asked if n != base and (value := found.way.value(n)) is not None]
    return any(value.high - value.low > VAGUE * abs(value.mid) for value in values)


def _fit(target: Series, way: Way) -> _Fit:
    asked = [n for n in sorted(target.by_n) if n in way.source.by_n and (way.absolute or n != way.source.base)]
    values = {n: way.value(n) for n in asked}
    fits = tuple(n for n in asked if (value := values[n]) is not None and value.meets(target.by_n[n].span))
    return _Fit(way, tuple(asked), fits)


def _telling(found: _Fit, right: list[_Fit]) -> bool:
    """A wrong way counts where it fits more than the right ones do: with one cell any of ten ways may fit by chance."""
    best = max((len(each.fits) for each in right), default=0)
    return len(found.fits) > best


def _based(target: Series, best: _Fit) -> bool:
    """Whether the base of the speed-up is the one of this table: it prints 1, or most other numbers fit it."""
    if best.way.absolute:
        return True
    base = target.by_n.get(best.way.source.base)
    return 2 * len(best.fits) >= len(best.asked) > 1 or (
        base is not None and base.span.around(1) and base.span.high < 2.5
    )


def _whole(rule: str, target: Series, found: _Fit, right: list[_Fit], changes: Changes) -> Checked:
    """One wrong way fits the whole series."""
    true = right[0] if right else found
    values = {n: value for n in found.asked if (value := true.way.value(n)) is not None}
    explain = found.way.kind == "explain"
    facts = [target.by_n[n] for n in found.asked]
    name = f"{target.name}: " if target.name else ""
    says = found.way.cause or f"It fits only {found.way.says}."
    return Checked(
        0,
        (
            Finding(
                rule,
                Verdict.EXPLAIN if explain else Verdict.FAIL,
                f"The {target.quantity} is {found.way.says}. {says}",
                places(facts),
                facts[0].place.table,
                ", ".join(fact.text for fact in facts),
                f"{name}{true.way.says} = {_values(values)}",
                f"fits if computed as {found.way.says}",
                None if explain else changes(target, values),
            ),
        ),
    )


def _no_base(rule: str, target: Series, found: _Fit, odd: list[int]) -> Checked:
    """Each ratio fits by itself, but these fit no base that the others fit."""
    base = found.way.source.by_n[found.way.source.base]
    facts = [target.by_n[n] for n in odd]
    n, value = odd[0], found.way.value(odd[0])
    given = f" = {value.mid:.3g}" if value is not None else ""
    return Checked(
        len(found.asked) - len(odd),
        (
            Finding(
                rule,
                Verdict.FAIL,
                f"{facts[0].text} of N = {n} fits no base that was rounded to {base.text} and that the other rows fit.",
                places([*facts, base]),
                facts[0].place.table,
                ", ".join(fact.text for fact in facts),
                f"{found.way.says}{given}",
                None,
                "These rows have another base than the others, or a slip of the pen.",
            ),
        ),
    )


def _cells(rule: str, target: Series, best: _Fit, fits: list[_Fit], vouched: bool) -> Checked:
    """Most fit the right way: each that does not is wrong by itself. None does: nothing says which is meant."""
    odd = [n for n in best.asked if n not in best.fits]
    base = target.by_n.get(best.way.source.base)
    doubted = not best.way.absolute and len(best.fits) * 2 < len(best.asked) and base is None and not vouched
    findings = []
    for n in odd:
        fact, value = target.by_n[n], best.way.value(n)
        if value is None:
            continue
        source = best.way.source.by_n[n]
        findings.append(
            Finding(
                rule,
                Verdict.SUSPECT if doubted else Verdict.FAIL,
                f"The {target.quantity} of N = {n} is printed as {fact.text}; {best.way.says} gives {shown(value)}.",
                (fact.place, source.place),
                fact.place.table,
                fact.text,
                f"{best.way.says} = {shown(value)}",
                _fits_if(n, fact, value, fits),
                f"What is said of N = {n} changes by {abs(fact.span.mid / value.mid - 1):.0%}." if value.mid else None,
            )
        )
    return Checked(len(best.fits), tuple(findings))


def _fits_if(n: int, fact: Fact, value: Span, fits: Iterable[_Fit]) -> str | None:
    """What makes a single cell right: another way, or a slip of the pen."""
    for each in fits:
        if each.way.kind != "right" and n in each.fits:
            return f"fits if computed as {each.way.says}"
    for factor, says in (
        (10.0, "ten times too large"),
        (0.1, "ten times too small"),
        (100.0, "percent without its sign"),
    ):
        if (value * factor).meets(fact.span):
            return f"fits if {says}"
    digits = fact.number.digits
    for place in range(len(digits) - 1):
        swapped = digits[:place] + digits[place + 1] + digits[place] + digits[place + 2 :]
        try:
            found = float(swapped.replace(",", ""))
        except ValueError:
            continue
        width = (fact.number.span.high - fact.number.span.low) / 2
        scale = fact.span.high / fact.number.span.high if fact.number.span.high else 1.0
        if swapped != digits and value.meets(Span(found - width, found + width) * scale):
            return f"fits if two digits were swapped: {swapped}"
    return None


def _values(values: dict[int, Span]) -> str:
    return ", ".join(f"{value.mid:.3g} (N = {n})" for n, value in values.items())


def _speedup_changes(target: Series, values: dict[int, Span]) -> str:
    """What falls with a wrong speed-up."""
    largest, printed = (
        max(values, key=lambda n: values[n].mid),
        max(target.by_n.values(), key=lambda fact: fact.span.mid),
    )
    if all(value.high < 1 for value in values.values()):
        true = listed([value.mid for value in values.values()])
        return f"No N is faster than the base: {true}; {printed.text} is claimed."
    return f"The largest speed-up is {values[largest].mid:.3g} (N = {largest}), not {printed.text}."


def _efficiency_changes(target: Series, values: dict[int, Span]) -> str:
    largest = max(values)
    return f"At N = {largest} the efficiency is {values[largest].mid:.1%}, not {target.by_n[largest].text}."


RULES = (
    Rule("speedup", "Speed-ups follow from times or rates", check_speedup, "method.md §6"),
    Rule("efficiency", "Efficiencies follow from speed-ups, times or rates", check_efficiency, "method.md §6"),
)
