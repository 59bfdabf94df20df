"""Rates: of one worker and of all, and what they make of a time."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import (
    Checked,
    Page,
    Rule,
    Verdict,
    one_finding,
    shown,
    together,
)
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.rules.same_samples import epochs_alike
from worldsize.analysis.audit.series import beside, is_typical, only, samples_of

CLOSE = 0.03
"""A smaller last batch, and averages of rates, make this much."""
SLIP = 0.01
"""Less is no slip of the pen, also where all other steps agree to the last digit: sound tables have up to 0.3 %."""
ENOUGH = 4
"""So many pairs of a table say together what its batch is, or that one of them is a slip."""
NEAR = 0.25
"""A rate of steady steps and a time of a whole epoch differ by this much in sound tables: evaluation and start."""


def check_total(reading: Reading, page: Page) -> Checked:
    """The rate of all workers is N times that of one."""
    found = []
    for total in reading.of(Quantity.RATE):
        if total.per == "worker" or total.n is None:
            continue
        each = only(
            [
                fact
                for fact in beside(reading, total, Quantity.RATE)
                if fact.per == "worker" and _what(fact, reading) == _what(total, reading)
            ]
        )
        if each is not None:
            found.append(_total(total, each, total.n))
    return together(found)


def _what(fact: Fact, reading: Reading) -> str:
    """What a rate counts: images are no tokens."""
    if fact.unit is not None:
        return fact.unit.name.lower().replace("image", "img").replace("sample", "img")[:3]
    inside = re.search(r"[(\[]([^()\[\]]*)", reading.columns[fact.place.column].heading)
    return inside[1].lower()[:3] if inside else ""


def _total(total: Fact, each: Fact, n: int) -> Checked:
    value = each.span * n
    if value.meets(total.span):
        return Checked(1)
    fits = "fits if it is the rate of one worker" if each.span.meets(total.span) else None
    for factor in (n * n, 1 / n):
        if (each.span * factor).meets(total.span):
            fits = "fits if N was multiplied twice" if factor > 1 else "fits if the total was divided by N"
    return one_finding(
        "rate-total",
        Verdict.FAIL,
        f"{each.text} of each of {n} workers make {shown(value, 4)} together; {total.text} is printed.",
        [total, each],
        f"{shown(value, 4)}",
        fits,
        f"The throughput of {n} workers is off by {abs(total.span.mid / value.mid - 1):.0%}." if value.mid else None,
    )


class _Pair(NamedTuple):
    rate: Fact
    time: Fact
    product: Span
    samples: Span
    """As they are said."""
    counts: str = "samples"
    """What the rate counts."""

    @property
    def exact(self) -> bool:
        return self.product.meets(self.samples)


def check_time(reading: Reading, page: Page) -> Checked:
    """Rate × time is the samples of that time: an epoch's, or a step's batch."""
    kinds = [
        list(_pairs(reading)) or _undeclared(reading) or _by_scaling(reading),
        list(_steps(reading)),
        list(_inverse(reading)),
    ]
    return together([*(_judged(pairs) for pairs in kinds), _whole(reading), epochs_alike(reading)])


def _whole(reading: Reading) -> Checked:
    """Of all epochs together, start and evaluation included, most of a table must say that they are meant."""
    pairs = list(_pairs(reading, times=(Quantity.TIME,)))
    near = [pair for pair in pairs if _is_close(pair, NEAR)]
    if len(near) < 2 or 2 * len(near) <= len(pairs):
        return Checked()
    odd = [pair for pair in pairs if pair not in near]
    # A run may be longer than its epochs, by a start that does not shrink with N; it cannot be shorter.
    return together(
        [Checked(len(near)), *(_time(p, others_fit=p.product.mid < p.samples.mid, alone=False) for p in odd)]
    )


def _judged(pairs: list[_Pair]) -> Checked:
    if len(pairs) >= 2 and (doubtful := _other_data(pairs)) is not None:
        return doubtful
    exact = sum(each.exact for each in pairs)
    alone = len(pairs) >= ENOUGH and exact == len(pairs) - 1
    return together([_time(each, others_fit=exact * 2 > len(pairs), alone=alone) for each in pairs])


def _other_data(pairs: list[_Pair]) -> Checked | None:
    """Where all rows make one number of samples, and not that of the data set, it is the data set that is in doubt."""
    if any(pair.time.quantity is not Quantity.EPOCH_TIME or _is_close(pair) for pair in pairs):
        return None
    low, high = max(pair.product.low for pair in pairs), min(pair.product.high for pair in pairs)
    if low > high * (1 + CLOSE):
        return None
    first, made = pairs[0], shown(Span(min(low, high), max(low, high)), 3)
    text = f"All rows make about {made} {first.counts} of an epoch; the data set that the words name has "
    return one_finding(
        "rate-time",
        Verdict.EXPLAIN,
        f"{text}{first.samples.high:.0f}.",
        [first.rate, first.time],
        f"{made} {first.counts}",
        "fits if it is another data set, or a part of it",
        "An epoch of other data takes another time; say what was trained on.",
    )


def _is_close(pair: _Pair, allowed: float = CLOSE) -> bool:
    return (pair.product * Span(1 - allowed, 1 + allowed)).meets(pair.samples)


def _undeclared(reading: Reading) -> list[_Pair]:
    """Whose the batch is may not be said: that of all or of each, if most of the table agrees to the last digit."""
    for per in ("total", "worker"):
        pairs = list(_pairs(reading, per))
        exact = [each.rate.n for each in pairs if each.exact]
        if len(exact) >= ENOUGH - 1 and len(exact) * 2 > len(pairs) and len(exact) - exact.count(1) > 1:
            return pairs
    return []


ONE = (Quantity.EPOCH_TIME, Quantity.STEP_TIME)


def _by_scaling(reading: Reading) -> list[_Pair]:
    """A batch that is the same at each N: of all in strong scaling, of each in weak, if most rows agree."""
    per = {"strong": "total", "weak": "worker"}.get(reading.words.scaling or "")
    pairs = list(_pairs(reading, per)) if per else []
    exact = [each.rate.n for each in pairs if each.exact]
    one = len({pair.rate.batch for pair in pairs}) == 1
    return pairs if one and 2 * len(exact) > len(pairs) and len(exact) > max(1, exact.count(1)) else []


def _pairs(reading: Reading, per: str | None = None, times: tuple[Quantity, ...] = ONE) -> Iterator[_Pair]:
    """`per`: whose the batch is where it is not said."""
    for rate in reading.of(Quantity.RATE):
        counted = rate.unit.name.lower() if rate.unit else ""
        if any(word in counted for word in ("word", "wps", "frame", "mel")) or (
            "tok" in counted and not reading.words.sequence
        ):
            continue
        tokens = (reading.words.sequence or 1) if "tok" in counted else 1
        for time in beside(reading, rate, *times):
            if not is_typical(reading, time) or not is_typical(reading, rate):
                continue
            samples = _samples(reading, rate, time, per)
            if samples is not None:
                workers = (rate.n or 1) if rate.per == "worker" else 1
                counts = "tokens" if tokens > 1 else "samples"
                yield _Pair(rate, time, rate.span * time.span * float(workers), samples * float(tokens), counts)


def _steps(reading: Reading) -> Iterator[_Pair]:
    """Steps a second make samples a second with the batch of a step."""
    for rate in reading.of(Quantity.RATE):
        steps = only(beside(reading, rate, Quantity.STEP_RATE))
        counted = rate.unit.name.lower() if rate.unit else ""
        if steps is None or any(word in counted for word in ("word", "wps", "frame", "mel", "tok")):
            continue
        samples = _samples(reading, rate, steps, None)
        if samples is not None:
            workers = (rate.n or 1) if rate.per == "worker" else 1
            yield _Pair(rate, steps, rate.span / steps.span * float(workers), samples)


def _inverse(reading: Reading) -> Iterator[_Pair]:
    """Steps a second are 1 ÷ the time of a step; where all rows say so, those of all workers together."""
    pairs = []
    for rate in reading.of(Quantity.STEP_RATE):
        time = only([each for each in beside(reading, rate, Quantity.STEP_TIME) if is_typical(reading, each)])
        if time is not None:
            pairs.append(_Pair(rate, time, rate.span * time.span, Span.exact(1)))
    workers = [pair.product.around(pair.rate.n or 1) for pair in pairs]
    if not all(workers):
        yield from pairs


def _samples(reading: Reading, rate: Fact, time: Fact, otherwise: str | None) -> Span | None:
    if time.quantity in (Quantity.EPOCH_TIME, Quantity.TIME):
        samples, epochs = samples_of(reading, time), 1 if time.quantity is Quantity.EPOCH_TIME else reading.words.epochs
        if not samples or not epochs or reading.words.grows:
            return None
        return Span(samples * epochs * 0.97, samples * epochs)  # the last batch may be dropped
    whole = only([each for each in beside(reading, rate, Quantity.BATCH) if each.per == "total"])
    if whole is not None:
        return whole.span
    batch = rate.batch if rate.batch is not None else time.batch
    per = rate.batch_per or time.batch_per or otherwise
    accumulates = reading.words.accumulation or reading.of(Quantity.ACCUMULATION)
    if batch is None or rate.sharing is None or per is None or accumulates:
        return None
    return Span.exact(batch * rate.sharing if per == "worker" else batch)


def _time(pair: _Pair, *, others_fit: bool, alone: bool) -> Checked:
    """`alone`: the step is the only one of several that does not agree to the last digit."""
    rate, time, product, samples, _ = pair
    allowed = SLIP if alone and time.quantity is Quantity.STEP_TIME else CLOSE
    if _is_close(pair, allowed):
        return Checked(1)
    n, fits = rate.n or 1, None
    for factor, says in (
        (1 / n, "fits if the rate is of one worker" if rate.per != "worker" else ""),
        (n, "fits if the rate is of all workers"),
    ):
        if n > 1 and (product * (1 / factor)).meets(samples):
            fits = says or None
    off = abs(product.mid / samples.mid - 1)
    far = off > NEAR and time.quantity is not Quantity.TIME
    verdict = Verdict.FAIL if others_fit or fits or far else Verdict.EXPLAIN
    says, recomputed = _said(pair)
    return one_finding(
        "rate-time",
        verdict,
        says,
        [rate, time],
        recomputed,
        fits,
        f"Rate and time differ by {off:.0%}; one of them is not of what is said.",
    )


def _said(pair: _Pair) -> tuple[str, str]:
    """What does not fit, and what would."""
    rate, time, product, samples, counts = pair
    if rate.quantity is Quantity.STEP_RATE:
        steps = f"{shown(samples / time.span, 4)} steps/s"
        return f"A step of {time.text} makes {steps}; {rate.text} is printed.", f"1 ÷ {time.text} = {steps}"
    if time.quantity is Quantity.STEP_RATE:
        value = shown(samples * time.span, 4)
        text = (
            f"{rate.text} at {time.text} steps/s are {shown(product, 4)} samples a step; a step has {samples.high:.0f}."
        )
        return text, f"{samples.high:.0f} × {time.text} = {value} samples/s"
    what = {Quantity.EPOCH_TIME: "an epoch has", Quantity.TIME: "the run has"}.get(time.quantity, "a step has")
    text = f"{rate.text} for {time.text} are {shown(product, 4)} {counts}; {what} {samples.high:.0f}."
    return text, f"{samples.high:.0f} ÷ {time.text} = {shown(samples / time.span, 4)} {counts}/s"


RULES = (
    Rule("rate-total", "The rate of all workers is N times that of one", check_total, "arithmetic"),
    Rule("rate-time", "Rate × time is the samples of that time", check_time, "arithmetic"),
)
