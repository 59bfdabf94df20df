"""Benchmarks of collectives: algbw, busbw, and the peak of the link."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

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
from worldsize.analysis.audit.known import LINKS_BYTES_PER_S
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.rules.bandwidth import per_second
from worldsize.analysis.audit.series import only

BUS: dict[str, Callable[[int], float]] = {
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "all-gather": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
}
"""busbw ÷ algbw of nccl-tests; reduce-scatter and all-to-all as all-gather, reduce and send/receive as broadcast."""


_LIKE = (
    ("all[-_ ]?reduce", "all-reduce"),
    ("all[-_ ]?gather|reduce[-_ ]?scatter|all[-_ ]?to[-_ ]?all", "all-gather"),
    ("broadcast|send|\\breduce\\b|gather|scatter", "broadcast"),
)


def check_bus(reading: Reading, page: Page) -> Checked:
    """busbw ÷ algbw is the factor of the collective at N; algbw is size ÷ time."""
    found = []
    pairs = list(_pairs(reading))
    fitting = _fitting(pairs)
    for pair in pairs:
        alike = [each for each in pairs if (each.n, each.collective) == (pair.n, pair.collective)]
        found.append(_bus(pair, _common([each.ratio for each in alike]), pair.collective or fitting))
    return together([*found, *_rates(list(_timed(reading)))])


class _Timed(NamedTuple):
    alg: Fact
    size: Fact
    time: Fact

    def rate(self, *, binary: bool) -> Span:
        """Bytes a second; `binary`: M is 2²⁰, as nccl-tests counts."""
        letter = re.search(r"([kmgt])b?$", f"{self.size.text}{self.size.unit.name if self.size.unit else ''}".lower())
        power = 1 + "kmgt".index(letter[1]) if binary and letter else 0
        return self.size.span * 1.024**power / self.time.span

    def holds(self, *, binary: bool) -> bool:
        """nccl-tests rounds times to hundredths of a microsecond, and averages."""
        rate = self.rate(binary=binary)
        return Span(rate.low * 0.98, rate.high * 1.02).meets(per_second(self.alg))


def _timed(reading: Reading) -> Iterator[_Timed]:
    kinds = (Quantity.TIME, Quantity.STEP_TIME)
    for alg in reading.of(Quantity.ALGBW):
        row = [fact for fact in reading.facts if fact.place.row == alg.place.row]
        size = only([fact for fact in row if fact.quantity is Quantity.BYTES])
        time = _nearest(alg, [fact for fact in row if fact.quantity in kinds and fact.unit])
        if size is not None and time is not None:
            yield _Timed(alg, size, time)


def _rates(rows: list[_Timed]) -> Iterator[Checked]:
    """Size ÷ time of each row, with M as 10⁶ or as 2²⁰, whichever more rows fit."""
    fits = {binary: sum(row.holds(binary=binary) for row in rows) for binary in (False, True)}
    binary = fits[True] > fits[False]
    for row in rows:
        yield Checked(1) if row.holds(binary=binary) else _wrong_rate(row, row.rate(binary=binary))


class _Pair(NamedTuple):
    bus: Fact
    alg: Fact
    n: int | None
    collective: str | None
    """As its row or the words of the table say."""

    @property
    def ratio(self) -> Span:
        return self.bus.span / self.alg.span


def _pairs(reading: Reading) -> Iterator[_Pair]:
    words = " ".join(" ".join(row) for row in reading.table.rows[:1])
    general = _collective(f"{reading.words.caption} {words} {reading.words.text}")
    workers = reading.words.workers or _ranks(reading.words.text.lower())
    for bus in reading.of(Quantity.BUSBW):
        alg = _nearest(bus, [fact for fact in reading.of(Quantity.ALGBW) if fact.place.row == bus.place.row])
        if alg is not None and alg.span.low > 0:
            own = _collective(" ".join(reading.table.rows[bus.place.row]))
            yield _Pair(bus, alg, bus.n or workers, own or general)


def _nearest(fact: Fact, others: list[Fact]) -> Fact | None:
    """The one that stands last before it: nccl-tests has out-of-place and in-place side by side."""
    before = [other for other in others if other.place.column < fact.place.column]
    return before[-1] if before else only(others)


def _collective(text: str) -> str | None:
    return next((name for pattern, name in _LIKE if re.search(pattern, text.lower())), None)


def _ranks(low: str) -> int | None:
    """How many ranks the lines above the table of nccl-tests list."""
    return len(set(re.findall(r"\brank\s+(\d+)\s+(?:group|pid)\b", low))) or None


def _fitting(pairs: list[_Pair]) -> str | None:
    """Where no word says it, and N differs: the collective whose factors most rows have."""
    counted = [pair for pair in pairs if pair.n is not None and pair.n > 1]
    if len({pair.n for pair in counted}) < 2:
        return None
    fits = {name: sum(pair.ratio.around(of_n(pair.n or 1)) for pair in counted) for name, of_n in BUS.items()}
    best = max(fits, key=lambda name: fits[name])
    return best if 2 * fits[best] > len(counted) else None


def _common(ratios: list[Span]) -> Span | None:
    """From most rows: busbw ÷ algbw is one factor for all that are alike."""
    candidates = sorted(ratios, key=lambda each: sum(each.meets(other) for other in ratios), reverse=True)
    if not candidates:
        return None
    common = candidates[0]
    for each in ratios:
        if each.meets(common):
            common = Span(max(common.low, each.low), min(common.high, each.high))
    return common


def _bus(pair: _Pair, common: Span | None, collective: str | None) -> Checked:
    bus, alg, n, ratio = pair.bus, pair.alg, pair.n, pair.ratio
    if collective is not None and n is not None and n > 1:
        right = BUS[collective](n)
        if ratio.around(right) or bus.span.meets(alg.span * right):
            return Checked(1)
        fits = next(
            (
                f"fits for {other} of {count} workers"
                for other in BUS
                for count in sorted({n, 2, 4, 8, 16, 32, 64, 128})
                if ratio.around(BUS[other](count))
            ),
            None,
        )
        text = f"busbw ÷ algbw is {shown(ratio)}; of {collective} with {n} workers it is {right:.3g}."
        return _bus_finding(bus, alg, text, f"{shown(alg.span * (right * 1e-9))} GB/s", fits)
    if common is None or ratio.meets(common):
        known = common is None or any(
            common.around(function(count)) for function in BUS.values() for count in range(2, 4097)
        )
        return Checked(1 if known else 0)
    return _bus_finding(
        bus,
        alg,
        f"busbw ÷ algbw is {shown(ratio)} here and {shown(common)} in the other rows.",
        f"{shown(alg.span * common * 1e-9)} GB/s",
        None,
    )


def _bus_finding(bus: Fact, alg: Fact, says: str, recomputed: str, fits: str | None) -> Checked:
    return one_finding(
        "busbw",
        Verdict.FAIL,
        says,
        [bus, alg],
        recomputed,
        fits,
        "The bus bandwidth is what is compared with the link's peak.",
    )


def _wrong_rate(row: _Timed, value: Span) -> Checked:
    alg, size, time = row
    fits = (
        "fits in GiB/s"
        if (value * (1e9 / 2**30)).meets(per_second(alg))
        else "fits in Gbit/s"
        if (value * 8.0).meets(per_second(alg))
        else None
    )
    text = f"{size.text} bytes in {time.text} are {shown(value * 1e-9)} GB/s; {alg.text} is printed."
    return one_finding(
        "bandwidth",
        Verdict.FAIL,
        text,
        [alg, size, time],
        f"{shown(value * 1e-9)} GB/s",
        fits,
        "What the link can do is not what the table says.",
    )


def check_peak(reading: Reading, page: Page) -> Checked:
    """A bandwidth above the peak of the link that is named."""
    low = reading.words.text.lower()
    peaks = [(re.search(pattern, low), peak) for pattern, peak in LINKS_BYTES_PER_S.items()]
    named = [(found.group(0), peak) for found, peak in peaks if found is not None]
    if len(named) != 1 or re.search(r"nvlink|nvswitch|intra-?node|pcie", low):
        return Checked()
    name, peak = named[0]
    facts = reading.of(Quantity.BUSBW) or reading.of(Quantity.BANDWIDTH, Quantity.ALGBW)
    over = [fact for fact in facts if per_second(fact).low > peak]
    if not over:
        return Checked(len(facts))
    text = f"{over[0].text} is above the {peak / 1e9:g} GB/s of {name}, one way."
    cause = "Possible with in-network reduction, several links, or workers of one host; it must be said."
    return Checked(
        len(facts) - len(over),
        (
            Finding(
                "link-peak",
                Verdict.SUSPECT,
                text,
                places(over),
                reading.index,
                over[0].text,
                f"at most {peak / 1e9:g} GB/s",
                "fits if it is in Gbit/s" if per_second(over[0]).low / 8 <= peak else None,
                cause,
            ),
        ),
    )


RULES = (
    Rule("busbw", "busbw ÷ algbw is the factor of the collective", check_bus, "nccl-tests, PERFORMANCE.md"),
    Rule("link-peak", "No bandwidth is above its link's peak", check_peak, "IEEE 802.3"),
)
