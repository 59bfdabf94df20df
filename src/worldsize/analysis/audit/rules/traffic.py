"""What travels and what it takes: gradients and not the data set, the share of a link, the time of all workers."""

import re

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Page, Rule, Verdict, one_finding, shown, together
from worldsize.analysis.audit.known import LINKS_BYTES_PER_S
from worldsize.analysis.audit.numbers import Printed, Span, printed
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.rules.bandwidth import per_second
from worldsize.analysis.audit.rules.sizes import costs_in
from worldsize.analysis.audit.series import beside, only

_SIZE = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s?([KMGT]i?B)\b(?!/)")
_OF_DATA = re.compile(r"\b(?:data ?set|data|images|samples|corpus|training set|files)\b", re.IGNORECASE)
_OF_GRADIENTS = re.compile(r"gradient|parameter|weights|all-?reduce|payload|model\b", re.IGNORECASE)
_MOVED = re.compile(r"transfer|exchang|communicat|comm\b|traffic|sent|moved|volume|all-?reduce|payload", re.IGNORECASE)
_LOADED = re.compile(r"memory|data ?set|load|read|input|stor|model", re.IGNORECASE)
ENOUGH = 2
"""So many rows must fit, and more than do not, before another row is wrong."""


def check_traffic(reading: Reading, page: Page) -> Checked:
    """What workers exchange are gradients: not as many bytes as the data set has, at any N."""
    columns: dict[int, list[Fact]] = {}
    for fact in reading.of(Quantity.BYTES):
        heading = reading.columns[fact.place.column].heading
        moved = f"{heading} {reading.words.caption}"
        if fact.unit is not None and _MOVED.search(moved) and not _LOADED.search(heading) and fact.n is not None:
            columns.setdefault(fact.place.column, []).append(fact)
    found = [_traffic(facts, reading) for facts in columns.values()]
    return together([*found, *(_elements(facts, reading) for facts in columns.values())])


def _elements(facts: list[Fact], reading: Reading) -> Checked:
    """Bytes that are the count of parameters, or what a ring makes of it, at every N."""
    parameters, size = reading.words.parameters, reading.words.element_bytes
    if parameters is None or size is None:
        return Checked()
    for says, factor in (
        ("1", lambda n: 1.0),
        ("2(N−1)/N", lambda n: 2 * (n - 1) / n),
        ("(N−1)/N", lambda n: (n - 1) / n),
    ):
        values = [(parameters.span * factor(fact.n or 1), fact) for fact in facts]
        if all((value * float(size)).meets(fact.span) for value, fact in values):
            return Checked(1)
        if all(value.meets(fact.span) for value, fact in values):
            right = f"{shown(values[0][0] * (size * 1e-9))} GB"
            text = f"{facts[0].text} is {says} × the count of parameters; each has {size} bytes."
            changes = f"Bandwidths computed from it are {size} times too low."
            fits = "fits if elements are taken for bytes"
            return one_finding("bandwidth", Verdict.FAIL, text, facts, right, fits, changes)
    return Checked()


def _traffic(facts: list[Fact], reading: Reading) -> Checked:
    for size in _data_sizes(reading.words.text):
        span = size.span * (size.unit.factor if size.unit else 1.0)
        if all(fact.span.meets(span) for fact in facts):
            costs = [cost for cost in costs_in(reading.words.text) if not cost.span.meets(span)]
            text = f"{facts[0].text} is the size of the data set; what workers exchange are gradients."
            return one_finding(
                "traffic",
                Verdict.FAIL,
                text,
                facts,
                f"{costs[0].number.text} a step × the steps" if costs else "bytes of the gradients × the steps",
                "fits if the data are taken for what is exchanged",
                "Bandwidths computed from it are of nothing that was sent between workers.",
            )
    return Checked(1 if facts else 0)


def _data_sizes(text: str) -> list[Printed]:
    """Bytes that a clause says of the data and not of the gradients."""
    found = []
    for clause in re.split(r"[;.](?=\s|$)|\n", text):
        if not _OF_DATA.search(clause) or _OF_GRADIENTS.search(clause) or _MOVED.search(clause):
            continue
        found += [number for match in _SIZE.finditer(clause) if (number := printed(match[0])) is not None]
    return found


def check_share(reading: Reading, page: Page) -> Checked:
    """The share of a link is bandwidth ÷ peak, both in bytes or both in bits."""
    low = reading.words.text.lower()
    peaks = {peak for pattern, peak in LINKS_BYTES_PER_S.items() if re.search(pattern, low)}
    if len(peaks) != 1:
        return Checked()
    peak = peaks.pop()
    found = []
    for share in reading.of(Quantity.UTILIZATION):
        near = only(beside(reading, share, Quantity.BANDWIDTH, Quantity.BUSBW))
        if near is not None:
            found.append((share, near, per_second(near) * (1 / peak)))
    held = [share for share, _, value in found if value.meets(share.span)]
    for factor, says in (
        (1 / 8, "fits if bytes a second are divided by bits a second"),
        (8.0, "fits if bits are taken for bytes"),
    ):
        wrong = [(share, near, value) for share, near, value in found if (value * factor).meets(share.span)]
        if found and len(wrong) == len(found):
            share, near, value = wrong[0]
            return one_finding(
                "link-share",
                Verdict.FAIL,
                f"{near.text} of a link of {peak * 1e-9:g} GB/s is {value.mid:.1%}; {share.text} is printed.",
                [each for each, _, _ in wrong],
                f"{value.mid:.1%}",
                says,
                "How much of the link is left is another number.",
            )
    return Checked(len(held))


def check_worker_time(reading: Reading, page: Page) -> Checked:
    """GPU-hours are N × the time; most rows say of which time."""
    columns: dict[int, list[Fact]] = {}
    for fact in reading.of(Quantity.WORKER_TIME):
        columns.setdefault(fact.place.column, []).append(fact)
    return together(_worker_time(facts, reading) for facts in columns.values())


def _worker_time(facts: list[Fact], reading: Reading) -> Checked:
    ways: dict[tuple[int, bool], list[tuple[Fact, Fact, Span]]] = {}
    for fact in facts:
        for time in beside(reading, fact, *TIMES):
            for by_node, count in ((False, fact.n), (True, fact.nodes)):
                if count:
                    ways.setdefault((time.place.column, by_node), []).append((fact, time, time.span * float(count)))
    best = max(ways.values(), key=_fitting, default=[])
    if _fitting(best) < ENOUGH or 2 * _fitting(best) <= len(best):
        return Checked()
    found = [Checked(_fitting(best))]
    for fact, time, value in best:
        if not value.meets(fact.span):
            scale = fact.unit.factor if fact.unit else 1.0
            text = f"{time.text} on {fact.n} workers makes {shown(value * (1 / scale), 4)}; {fact.text} is printed."
            changes = "What the run costs is another number."
            found.append(
                one_finding(
                    "worker-time", Verdict.FAIL, text, [fact, time], shown(value * (1 / scale), 4), None, changes
                )
            )
    return together(found)


def _fitting(way: list[tuple[Fact, Fact, Span]]) -> int:
    return sum(value.meets(fact.span) for fact, _, value in way)


RULES = (
    Rule("traffic", "What workers exchange are gradients", check_traffic, "method.md §5"),
    Rule("link-share", "The share of a link is bandwidth ÷ peak", check_share, "IEEE 802.3"),
    Rule("worker-time", "GPU-hours are N × the time", check_worker_time, "arithmetic"),
)
