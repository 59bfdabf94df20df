"""Sizes: parameters of known models, and the bytes that are said to travel."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from worldsize.analysis.audit.facts import Fact, Place, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, one_finding, shown, together
from worldsize.analysis.audit.known import NETWORKS, network_in
from worldsize.analysis.audit.numbers import Printed, Span, printed
from worldsize.analysis.audit.quantities import Quantity
from worldsize.analysis.audit.series import only

NEAR = 0.3
"""A count further from all variants than this is of another kind of network, and nothing is said of it."""


class _Count(NamedTuple):
    network: str
    number: Printed
    classes: int | None
    table: int | None
    places: tuple[Place, ...]


def check_parameters(reading: Reading, page: Page) -> Checked:
    """The parameters of a known model are those of one of its variants, and of as many classes as the data have."""
    return together(_parameters(count) for count in _counts(reading))


def _counts(reading: Reading) -> Iterator[_Count]:
    words = reading.words
    if reading.index == 0 and words.parameters is not None and words.network is not None:
        yield _Count(words.network, words.parameters, words.classes, None, ())
    for fact in reading.of(Quantity.PARAMETERS):
        network = _network_of(fact, reading)
        if network is not None:
            yield _Count(network, fact.number, words.classes, reading.index, (fact.place,))


def _network_of(fact: Fact, reading: Reading) -> str | None:
    """The model of a row: its own label, else that of the words."""
    named = [network for entry in reading.table.rows[fact.place.row] if (network := network_in(entry)) is not None]
    return named[0] if named else (reading.words.network if not fact.row_labels else None)


def _parameters(count: _Count) -> Checked:
    counts = NETWORKS[count.network].counts()
    # "11.7M" without a unit after "Parameters (M)".
    span = count.number.span if count.number.value > 1e4 else count.number.span * 1e6
    fitting = [key for key, value in counts.items() if span.around(value)]
    if any(classes in (count.classes, 0) or count.classes is None for _, classes in fitting):
        return Checked(1)
    said = count.number.text
    own = {key: value for key, value in counts.items() if key[1] == count.classes}
    right = ", ".join(f"{value:,} ({variant})" for (variant, _), value in own.items())
    if fitting:
        many = fitting[0][1]
        text = f"{said} parameters are those of {count.network} with {many:,} classes; the data have {count.classes}."
        changes = "Bytes and bandwidth computed from them are off as well, if the model has one output per class."
        return _finding(count, Verdict.SUSPECT, text, right, f"fits with {many:,} classes", changes)
    nearest = min(counts.values(), key=lambda value: abs(value - span.mid))
    for factor, says in (
        (10.0, "ten times too many"),
        (0.1, "ten times too few"),
        (4.0, "bytes of fp32 taken for parameters"),
        (2.0, "bytes of half precision taken for parameters"),
    ):
        if any((span * (1 / factor)).around(value) for value in counts.values()):
            return _finding(
                count,
                Verdict.FAIL,
                f"{said} is not the parameters of {count.network}.",
                right or f"{nearest:,}",
                f"fits if {says}",
                "Bytes that are computed from it are off by the same factor.",
            )
    if abs(nearest / span.mid - 1) > NEAR:
        return Checked()
    text = f"{said} is the count of no usual variant of {count.network}; the nearest has {nearest:,}."
    return _finding(
        count, Verdict.EXPLAIN, text, right or f"{nearest:,}", None, "Which variant was trained must be said."
    )


def _finding(count: _Count, verdict: Verdict, says: str, recomputed: str, fits: str | None, changes: str) -> Checked:
    return Checked(
        0,
        (
            Finding(
                "parameters", verdict, says, count.places, count.table, count.number.text, recomputed, fits, changes
            ),
        ),
    )


class Cost(NamedTuple):
    """Bytes that words say one synchronisation moves, for one N or any."""

    number: Printed
    span: Span
    n: int | None


_COST = re.compile(
    r"([\d.,]+)\s?([KMGT]i?B)\b(?:\s*(?:for|on|with|at|\()\s*(\d+)\s*(?:GPUs?|workers|nodes|devices|processes))?",
    re.IGNORECASE,
)


def costs_in(text: str) -> list[Cost]:
    """In "cost 0.044 GB for 2 GPUs, 0.065 GB for 4 GPUs": what is said of the bytes of a synchronisation."""
    found = []
    for line in re.split(r"[\n.;](?=\s|$)", text):
        if not re.search(
            r"cost|gradient|payload|traffic|all-?reduce|volume|exchang|synchroni|communicat", line, re.IGNORECASE
        ):
            continue
        for match in _COST.finditer(line):
            after = line[match.end() :]
            if after.startswith("/") or re.match(r"\s*(?:is|=)\s*(?:10|2)", after):  # a rate, the definition of a unit
                continue
            number = printed(f"{match[1]} {match[2]}")
            if number is not None and number.unit is not None:
                found.append(Cost(number, number.span * number.unit.factor, int(match[3]) if match[3] else None))
    return found


def check_unit(reading: Reading, page: Page) -> Checked:
    """Bytes that only fit with the other unit: GB printed, GiB computed."""
    words = reading.words
    found = list(_gradients(reading))
    parameters = words.parameters.span if words.parameters else None
    if parameters is None and words.network and words.classes:
        own = [value for (_, classes), value in NETWORKS[words.network].counts().items() if classes == words.classes]
        parameters = Span(min(own), max(own)) if own else None
    if parameters is None:
        return together(found)
    found += [_unit(cost, parameters * float(words.element_bytes or 4), reading) for cost in costs_in(words.own)]
    return together(found)


def _gradients(reading: Reading) -> Iterator[Checked]:
    """Bytes beside parameters in a row: of fp32 or of half precision.

    Several columns of bytes are the parts of a memory, weights in bytes no number of parameters.
    """
    pairs = []
    for fact in reading.of(Quantity.BYTES):
        count = only([each for each in reading.of(Quantity.PARAMETERS) if each.place.row == fact.place.row])
        alone = only([each for each in reading.of(Quantity.BYTES) if each.place.row == fact.place.row])
        if count is not None and count.unit is None and alone is not None and fact.unit is not None:
            span = count.span if count.number.value > 1e4 else count.span * 1e6
            pairs.append((fact, span))
    sizes = (float(reading.words.element_bytes or 4), 2.0, 4.0, 8.0, 12.0, 16.0)
    size = max(sizes, key=lambda each: sum((span * each).meets(fact.span) for fact, span in pairs))
    for fact, span in pairs:
        value = span * size
        yield Checked(1) if value.meets(fact.span) else _bytes(fact, value, size)


def _bytes(fact: Fact, value: Span, size: float) -> Checked:
    """Printed bytes that are not those of their parameters: in another unit, or of something else."""
    unit = fact.unit.name if fact.unit else ""
    for scale, printed_as, is_in in SCALES:
        if printed_as.lower() == unit.lower() and (value * (1 / scale)).meets(fact.span):
            text = f"{fact.text} {unit} fits {shown(value)} bytes only in {is_in}: the units are mixed."
            changes = f"Bandwidths computed from it are {scale - 1:+.0%} off."
            fits = f"fits in {is_in}"
            return one_finding("bytes-unit", Verdict.FAIL, text, [fact], f"{shown(value)} bytes", fits, changes)
    factor, taken = fact.span.mid / value.mid, None
    if abs(factor * size - 1) < 0.02:
        taken = "fits if elements are taken for bytes"
    elif abs(factor - 8) < 0.1:
        taken = "fits if bits are taken for bytes"
    text = f"{fact.text} {unit} is printed for parameters of {shown(value)} bytes."
    changes = "Bandwidths computed from it are off by the same factor."
    return one_finding("bandwidth", Verdict.FAIL, text, [fact], f"{shown(value)} bytes", taken, changes)


SCALES = (
    (2**30 / 1e9, "GB", "GiB"),
    (2**20 / 1e6, "MB", "MiB"),
    (1e9 / 2**30, "GiB", "GB"),
    (1e6 / 2**20, "MiB", "MB"),
)
"""How much larger the unit is that was computed in, the one that is printed, and the one that was meant."""


def _factors(n: int | None) -> list[tuple[float, str]]:
    ring = (
        []
        if n is None or n < 2
        else [(2 * (n - 1) / n, "2(N−1)/N"), ((n - 1) / n, "(N−1)/N"), (2.0 * (n - 1), "2(N−1)"), (float(n), "N")]
    )
    return [(1.0, "1"), *ring, (2.0, "2")]


def _unit(cost: Cost, payload: Span, reading: Reading) -> Checked:
    for factor, _ in _factors(cost.n):
        if (payload * factor).meets(cost.span):
            return Checked(1)
    for scale, printed_as, is_in in SCALES:
        for factor, named in _factors(cost.n):
            value = payload * factor
            if cost.number.text.endswith(printed_as) and (value * (1 / scale)).meets(cost.span):
                text = f"{cost.number.text} is {shown(value)} bytes in {is_in}: the units are mixed."
                return Checked(
                    0,
                    (
                        Finding(
                            "bytes-unit",
                            Verdict.FAIL,
                            text,
                            (),
                            reading.index,
                            cost.number.text,
                            f"{shown(value)} bytes",
                            f"fits in {is_in}, with {named} × the gradients",
                            f"Bandwidths computed from it are {scale - 1:+.0%} off.",
                        ),
                    ),
                )
    if (payload * (1 / 4)).meets(cost.span) or any(
        (payload * (factor / 4)).meets(cost.span) for factor, _ in _factors(cost.n)
    ):
        text = f"{cost.number.text} is the count of parameters, not their bytes."
        return Checked(
            0,
            (
                Finding(
                    "bandwidth",
                    Verdict.FAIL,
                    text,
                    (),
                    reading.index,
                    cost.number.text,
                    f"{shown(payload)} bytes",
                    "fits if elements are taken for bytes",
                    "Bandwidths computed from it are four times too low.",
                ),
            ),
        )
    return Checked()


RULES = (
    Rule("parameters", "Parameters are those of the model", check_parameters, "torchvision, transformers"),
    Rule("bytes-unit", "GB are 10⁹ bytes, GiB 2³⁰", check_unit, "IEC 80000-13"),
)
