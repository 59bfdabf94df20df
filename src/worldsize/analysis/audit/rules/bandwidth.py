"""Bandwidth: which bytes, of how many steps, over which time."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import (
    Checked,
    Finding,
    Page,
    Rule,
    Verdict,
    one_finding,
    places,
    shown,
    together,
)
from worldsize.analysis.audit.known import NETWORKS
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.rules.sizes import costs_in
from worldsize.analysis.audit.series import beside, only

_BITS = "bits are taken for bytes"
_ONE_STEP = "the bytes are those of one step, the time is that of an epoch"
_EITHER = ("gbps", "mbps")
"""Units in which a small b may be a byte or a bit."""


@dataclass(frozen=True)
class _Way:
    bytes_: Span
    wrong: tuple[str, ...]
    """What is wrong with it; nothing for a right one."""
    says: str


def check_bandwidth(reading: Reading, page: Page) -> Checked:
    """A printed bandwidth is the bytes of all steps of its time ÷ that time."""
    facts = [fact for fact in reading.of(*_asked(reading)) if fact.n is not None and fact.n > 1]
    judged: list[tuple[Fact, Fact, list[_Way]]] = []
    for fact in facts:
        time = _time(fact, reading, page)
        if time is not None:
            judged.append((fact, time, list(_ways(fact, time, reading, page))))
    counted = together(_bytes_of_epoch(fact, reading) for fact in reading.of(Quantity.BYTES))
    if counted.findings:
        return counted
    if not judged or not all(ways for _, _, ways in judged):
        return Checked()
    names = [
        [(way.wrong, way.says) for way in ways if (way.bytes_ / time.span).meets(per_second(fact))]
        for fact, time, ways in judged
    ]
    common = [name for name in names[0] if all(name in each for each in names)]
    right = [name for name in common if not name[0]]
    either = all(fact.unit is not None and fact.unit.name in _EITHER for fact, _, _ in judged)
    if right or (either and any(wrong == (_BITS,) for wrong, _ in common)):
        return Checked(len(judged))
    if common:
        return _all_wrong(judged, min(common, key=lambda name: len(name[0])))
    return (
        together(_one(*each) for each in judged)
        if any(any(not name[0] for name in each) for each in names)
        else Checked()
    )


def _asked(reading: Reading) -> tuple[Quantity, ...]:
    """A bus bandwidth is held to algbw where that stands beside it (`collectives.py`), else to bytes and time."""
    alone = () if reading.of(Quantity.ALGBW) else (Quantity.BUSBW,)
    return (Quantity.BANDWIDTH, Quantity.ALGBW, *alone)


def _bytes_of_epoch(fact: Fact, reading: Reading) -> Checked:
    """Bytes of an epoch are those of a step, which the words say, × its steps."""
    steps = only(beside(reading, fact, Quantity.STEPS))
    costs = [cost for cost in costs_in(reading.words.text) if cost.n in (None, fact.n)]
    if steps is None or len(costs) != 1 or "epoch" not in reading.columns[fact.place.column].heading.lower():
        return Checked()
    value = costs[0].span * steps.span
    if value.meets(fact.span):
        return Checked(1)
    n, fits = fact.n or 1, None
    for factor, says in (
        (n, "fits with the steps of one worker, not ÷ N"),
        (0.25, "fits if elements are taken for bytes"),
    ):
        fits = fits or (says if (value * factor).meets(fact.span) else None)
    product = f"{costs[0].number.text} × {steps.text} steps are {shown(value * 1e-9)} GB"
    text = f"{product}; {fact.text} is printed for the epoch."
    changes = "The bandwidth that is computed from it is off by the same factor."
    found = (fact.place, steps.place)
    return Checked(
        0,
        (
            Finding(
                "bandwidth",
                Verdict.FAIL,
                text,
                found,
                fact.place.table,
                fact.text,
                f"{shown(value * 1e-9)} GB",
                fits,
                changes,
            ),
        ),
    )


def per_second(fact: Fact) -> Span:
    """In bytes a second; a bandwidth without a unit is in GB/s."""
    return fact.span if fact.unit is not None and fact.unit.kind == "bandwidth" else fact.span * 1e9


def _time(fact: Fact, reading: Reading, page: Page) -> Fact | None:
    """The communication time of the same N and batch: in this table, else in another."""
    near = only(beside(reading, fact, Quantity.COMMUNICATION))
    if near is not None:
        return near
    found = [
        other
        for table in page.readings
        for other in table.of(Quantity.COMMUNICATION)
        if other.n == fact.n and other.batch == fact.batch and other.row_labels == fact.row_labels
    ]
    if found or not re.search(
        "all-?reduce|communicat|gradient", f"{reading.words.caption} {fact.column_label}".lower()
    ):
        return only(found)
    return only(beside(reading, fact, Quantity.TIME, Quantity.STEP_TIME))


def _ways(fact: Fact, time: Fact, reading: Reading, page: Page) -> Iterator[_Way]:
    """Bytes by what is said or known, in an epoch or a step; the right ones first."""
    table = page.readings[time.place.table]
    heading = table.columns[time.place.column].heading.lower()
    epoch = "epoch" in heading or (
        not re.search("step|iter", heading) and (table.words.time_of == "epoch" or "epoch" in table.words.own.lower())
    )
    steps = _steps(fact, reading, page) if epoch else None
    if epoch and steps is None:
        return
    near = only(beside(reading, fact, Quantity.BYTES))
    if near is not None and near.unit is not None:
        whole = None if epoch else True
        if epoch and steps is not None:
            whole = _of_epoch(near, fact, reading)
            if whole is not True:
                yield from _of_bytes(near.span * steps[0], fact, "the bytes beside it × steps")
        if whole is not False:
            yield from _of_bytes(near.span, fact)
        else:
            yield _Way(near.span, (_ONE_STEP,), "the bytes beside it, of one step")
    for payload, wrong, says in _payloads(fact, reading, ring=fact.quantity is Quantity.BUSBW):
        if near is not None and not epoch:
            continue
        if epoch and steps is not None:
            right, alone = steps
            yield _Way(payload * right, wrong, f"{says} × steps")
            yield _Way(
                payload * alone, (*wrong, "the steps are those of one worker, not ÷ N"), f"{says} × steps of one worker"
            )
            yield _Way(
                payload,
                (*wrong, _ONE_STEP),
                f"{says} of one step",
            )
        else:
            yield _Way(payload, wrong, says)
        yield _Way(payload * (steps[0] if steps else 1.0) * 8, (*wrong, _BITS), f"{says}, in bits")


def _of_epoch(near: Fact, fact: Fact, reading: Reading) -> bool | None:
    """Whether bytes beside the time of an epoch are those of all its steps; None where nothing says."""
    heading = reading.columns[near.place.column].heading.lower()
    if "epoch" in heading:
        return True
    one = any(payload.meets(near.span) for payload, wrong, _ in _payloads(fact, reading, ring=True) if not wrong)
    return False if one or re.search("step|iter", heading) else None


def _of_bytes(bytes_: Span, fact: Fact, says: str = "the bytes beside it") -> Iterator[_Way]:
    """From the bytes that stand beside it; a bus bandwidth is seldom called so."""
    n = fact.n or 1
    yield _Way(bytes_, (), says)
    if fact.quantity is not Quantity.ALGBW and n > 1:
        yield _Way(bytes_ * (2 * (n - 1) / n), (), f"2(N−1)/N × {says}")
        yield _Way(bytes_ * ((n - 1) / n), (), f"(N−1)/N × {says}")
    yield _Way(bytes_ * 0.25, ("elements are taken for bytes",), f"{says}, ÷ 4")
    yield _Way(bytes_ * 8.0, (_BITS,), f"{says}, in bits")
    if fact.quantity is not Quantity.ALGBW and n > 1:
        yield _Way(bytes_ * (16 * (n - 1) / n), (_BITS,), f"2(N−1)/N × {says}, in bits")


def _steps(fact: Fact, reading: Reading, page: Page) -> tuple[Span, Span] | None:
    """Steps of an epoch, and those that one worker alone would take."""
    printed = only(beside(reading, fact, Quantity.STEPS))
    if printed is not None and fact.sharing:
        return printed.span, printed.span * float(fact.sharing)
    samples = page.overrides.samples or reading.words.samples
    if samples is None or fact.batch is None or fact.sharing is None:
        return None
    local = fact.batch if fact.batch_per != "total" else fact.batch / fact.sharing
    return tuple(Span(math.floor(samples / size), math.ceil(samples / size)) for size in (local * fact.sharing, local))  # type: ignore[return-value]


def _payloads(fact: Fact, reading: Reading, *, ring: bool = False) -> Iterator[tuple[Span, tuple[str, ...], str]]:
    """Bytes of one synchronisation; with `ring` also what a ring makes of bytes that the words say."""
    stated = [cost for cost in costs_in(reading.words.own) or costs_in(reading.words.text) if cost.n in (None, fact.n)]
    for cost in stated:
        if ring and fact.n:
            yield cost.span * (2 * (fact.n - 1) / fact.n), (), "2(N−1)/N × the bytes that are said"
        yield cost.span, (), "the bytes that are said"
        yield cost.span * 0.25, ("elements are taken for bytes",), "the bytes that are said, ÷ 4"
    if stated:
        return
    n, words = fact.n or 1, reading.words
    if words.parameters is not None:
        counts = words.parameters.span
    elif words.network and words.classes:
        own = [value for (_, classes), value in NETWORKS[words.network].counts().items() if classes == words.classes]
        if not own:
            return
        counts = Span(min(own), max(own))
    else:
        return
    for factor, named in (
        (2 * (n - 1) / n, "2(N−1)/N × gradients"),
        (1.0, "gradients"),
        ((n - 1) / n, "(N−1)/N × gradients"),
        (2.0 * (n - 1), "2(N−1) × gradients"),
    ):
        yield counts * factor * float(words.element_bytes or 4), (), named
    for factor, named in ((2 * (n - 1) / n, "2(N−1)/N × parameters"), (1.0, "parameters")):
        yield counts * factor, ("elements are taken for bytes",), named


def _all_wrong(judged: list[tuple[Fact, Fact, list[_Way]]], name: tuple[tuple[str, ...], str]) -> Checked:
    """One wrong way fits all of them."""
    fact, time, ways = judged[0]
    base = next(way for way in ways if not way.wrong)
    value = base.bytes_ / time.span
    factor = value.mid / per_second(fact).mid
    causes = "; ".join(name[0])
    return Checked(
        0,
        (
            Finding(
                "bandwidth",
                Verdict.FAIL,
                f"The bandwidths fit only if {causes}.",
                places(each[0] for each in judged),
                fact.place.table,
                ", ".join(each[0].text for each in judged),
                f"{shown(value * 1e-9)} GB/s at N = {fact.n} for {fact.text} ({base.says} ÷ {_with_unit(time)})",
                f"fits with {name[1]}",
                f"The link is used {shown(Span.exact(factor))} times as much as the table says."
                if factor >= 1
                else f"The link is used {shown(Span.exact(1 / factor))} times less than the table says.",
            ),
        ),
    )


def _with_unit(time: Fact) -> str:
    """A time as it was printed, with the unit of its column."""
    own = time.number.unit is not None or time.unit is None
    return time.text if own else f"{time.text} {time.unit.name if time.unit else ''}"


def _one(fact: Fact, time: Fact, ways: list[_Way]) -> Checked:
    if any((way.bytes_ / time.span).meets(per_second(fact)) and not way.wrong for way in ways):
        return Checked(1)
    found = next((way for way in ways if (way.bytes_ / time.span).meets(per_second(fact))), None)
    right = next(way for way in ways if not way.wrong)
    value = right.bytes_ / time.span
    fits = f"fits with {found.says}: {'; '.join(found.wrong)}" if found else None
    text = f"{fact.text} is printed for N = {fact.n}; {right.says} ÷ time is {shown(value * 1e-9)} GB/s."
    return one_finding(
        "bandwidth",
        Verdict.FAIL,
        text,
        [fact, time],
        f"{shown(value * 1e-9)} GB/s",
        fits,
        "What the link can do is not what the table says.",
    )


RULES = (Rule("bandwidth", "Bandwidth = bytes of all steps ÷ their time", check_bandwidth, "method.md §5"),)
