"""What can hardly be measured so: batches above the data, flat times, ranks that do not agree, ramps."""

from worldsize.analysis.audit.facts import Fact, Reading
from worldsize.analysis.audit.findings import Checked, Finding, Page, Rule, Verdict, places, shown, together
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.series import beside, only, samples_of, series_of

FLAT = 0.08
"""Times over batch that differ by less than this …"""
GROWTH = 16
"""… while the batch grows by this much or more."""
RANKS = 0.03
"""Step times of ranks of one step that differ by more than this are not of one synchronised step."""
RAMP = 5
"""So many values, the base among them, …"""
EXACT = 0.002
"""… each printed as exactly as this, tell a ramp from chance."""


def check_batch(reading: Reading, page: Page) -> Checked:
    """No batch is larger than the data."""
    given, words = page.overrides.samples, reading.words
    asked: dict[int, list[Fact]] = {}
    for fact in reading.facts:
        if fact.batch is None or fact.quantity in (Quantity.BATCH, Quantity.N, Quantity.SAMPLES):
            continue
        samples = samples_of(reading, fact, given)
        known = given is not None or words.data_set is not None or samples != words.samples
        if samples is not None and (known or samples >= 1000):
            asked.setdefault(samples, []).append(fact)
    return together(_above(facts, samples, reading) for samples, facts in asked.items())


def _above(facts: list[Fact], samples: int, reading: Reading) -> Checked:
    over = [fact for fact in facts if _whole(fact) > samples]
    if not over:
        return Checked(1)
    sizes = sorted({_whole(fact) for fact in over})
    first, last = sizes[0], sizes[-1]
    sizes_text = f"{first:,} to {last:,}" if last > first else f"{first:,}"
    text = f"A batch of {sizes_text} cannot be had from {samples:,} samples: the loader cuts it to what there is."
    return Checked(
        0,
        (
            Finding(
                "batch-above-data",
                Verdict.FAIL,
                text,
                places(over),
                reading.index,
                f"{first}",
                f"at most {samples}",
                f"fits if each of these rows is the run with {samples:,} once more",
                "These rows are one run again: they show nothing of larger batches, nor that memory holds them.",
            ),
        ),
    )


def _whole(fact: Fact) -> int:
    return (fact.batch or 0) * ((fact.sharing or 1) if fact.batch_per == "worker" else 1)


def check_flat(reading: Reading, page: Page) -> Checked:
    """The time of an epoch that does not fall while the batch grows is that of the loader, not of computing."""
    samples = page.overrides.samples or reading.words.samples
    found = []
    groups: dict[tuple[object, ...], list[Fact]] = {}
    for fact in reading.of(Quantity.EPOCH_TIME):
        if fact.batch and fact.span.low > 0 and (samples is None or _whole(fact) <= samples):
            groups.setdefault((fact.n, fact.row_labels, fact.column_label), []).append(fact)
    for facts in groups.values():
        found.append(_flat(sorted(facts, key=lambda fact: fact.batch or 0), reading))
    return together(found)


def _flat(facts: list[Fact], reading: Reading) -> Checked:
    stretch: list[Fact] = []
    for start in range(len(facts)):
        for end in range(len(facts), start + 2, -1):
            part = facts[start:end]
            times = [fact.span.mid for fact in part]
            grown = (part[-1].batch or 0) / max(part[0].batch or 1, 1)
            if max(times) / min(times) - 1 <= FLAT and grown >= GROWTH and len(part) > len(stretch):
                stretch = part
    if not stretch or any(
        word in reading.words.own.lower() for word in ("input-bound", "loader-bound", "data-bound", "loading dominates")
    ):
        return Checked(1 if len(facts) > 2 else 0)
    first, last = stretch[0], stretch[-1]
    low, high = min(fact.span.mid for fact in stretch), max(fact.span.mid for fact in stretch)
    batches = f"from b = {first.batch:,} to {last.batch:,}"
    text = f"The time of an epoch stays at {low:.3g} to {high:.3g} s {batches}: it is that of the input pipeline."
    return Checked(
        0,
        (
            Finding(
                "flat-over-batch",
                Verdict.SUSPECT,
                text,
                places(stretch),
                reading.index,
                f"{first.text} … {last.text}",
                None,
                "fits an input-bound loop",
                "Nothing follows for the device or for the batch: the loader was measured.",
            ),
        ),
    )


def check_ranks(reading: Reading, page: Page) -> Checked:
    """Ranks of one synchronised step end it together."""
    ranks = {fact.place.row for fact in reading.of(Quantity.RANK)}
    columns: dict[tuple[object, ...], list[Fact]] = {}
    for fact in reading.of(Quantity.STEP_TIME):
        if fact.place.row in ranks and fact.column_label in ("", "step", "iteration"):
            columns.setdefault((fact.place.column, fact.row_labels, fact.n, fact.batch), []).append(fact)
    found = []
    for facts in columns.values():
        if len(facts) < 2:
            continue
        slow, fast = max(facts, key=lambda fact: fact.span.mid), min(facts, key=lambda fact: fact.span.mid)
        if slow.span.low <= fast.span.high * (1 + RANKS):
            found.append(Checked(1))
            continue
        text = f"Ranks of one synchronised step take {fast.text} to {slow.text}; but each waits for the last."
        finding = Finding(
            "rank-times",
            Verdict.SUSPECT,
            text,
            places(facts),
            reading.index,
            f"{fast.text}, {slow.text}",
            None,
            "fits if it is the time before synchronisation",
            "An average over ranks is not the time of a step.",
        )
        found.append(Checked(0, (finding,)))
    return together(found)


def check_serial(reading: Reading, page: Page) -> Checked:
    """A printed serial fraction is Karp and Flatt's of the speed-up beside it."""
    found = []
    for fact in reading.of(Quantity.SERIAL):
        speedup = only(beside(reading, fact, Quantity.SPEEDUP))
        if speedup is None or fact.n is None or fact.n < 2:
            continue
        n = fact.n
        value = (Span.exact(1) / speedup.span - Span.exact(1 / n)) / (1 - 1 / n)
        letter = reading.columns[fact.place.column].heading.strip() == "e"  # which some write for efficiency
        if value.meets(fact.span) or (letter and (speedup.span / float(n)).meets(fact.span)):
            found.append(Checked(1))
            continue
        text = f"A speed-up of {speedup.text} on {n} workers has the serial fraction {shown(value)}, not {fact.text}."
        finding = Finding(
            "serial-fraction",
            Verdict.FAIL,
            text,
            (fact.place, speedup.place),
            reading.index,
            fact.text,
            shown(value),
            None,
            "What more workers could give is computed from it.",
        )
        found.append(Checked(0, (finding,)))
    return together(found)


def check_regular(reading: Reading, page: Page) -> Checked:
    """Measured values with equal steps between all of them, or no spread at all."""
    found = []
    for series in series_of(reading, *TIMES, Quantity.RATE, Quantity.ACCURACY):
        found.append(_ramp(series.facts(), reading))
    groups: dict[tuple[Quantity, str, int], list[Fact]] = {}
    for fact in reading.of(*TIMES, Quantity.RATE):
        groups.setdefault((fact.quantity, "column", fact.place.column), []).append(fact)
        groups.setdefault((fact.quantity, "row", fact.place.row), []).append(fact)
    for facts in groups.values():
        spreads = [fact.number.spread for fact in facts if fact.number.spread is not None]
        if len(spreads) >= 3 and not any(spreads):
            text = f"All {len(spreads)} spreads are printed as 0."
            found.append(
                Checked(
                    0,
                    (
                        Finding(
                            "too-regular",
                            Verdict.SUSPECT,
                            text,
                            places(facts),
                            reading.index,
                            None,
                            None,
                            None,
                            "It was measured once, or not at all.",
                        ),
                    ),
                )
            )
    return together(found)


def _ramp(facts: list[Fact], reading: Reading) -> Checked:
    """Exactly linear in N or in its place, or the same factor each time, with digits enough to tell."""
    widths = [(fact.span.high - fact.span.low) / 2 for fact in facts]
    values = [fact.span.mid for fact in facts]
    if len(facts) < RAMP - 1 or any(width > EXACT * abs(value) for width, value in zip(widths, values, strict=True)):
        return Checked()
    counts = [fact.n or 0 for fact in facts]
    if counts[-1] == counts[0]:
        return Checked()
    for axis, how in ((list(range(len(facts))), "differ by exactly the same"), (counts, "are exactly linear in N")):
        slope = (values[-1] - values[0]) / (axis[-1] - axis[0])
        line = [values[0] + slope * (place - axis[0]) for place in axis]
        if abs(slope) * (axis[1] - axis[0]) > 10 * max(widths) and _on(line, values, widths):
            return _too_regular(facts, reading, how)
    ratio = (values[-1] / values[0]) ** (1 / (len(values) - 1)) if values[0] > 0 and values[-1] > 0 else 1.0
    if abs(ratio - 1) > 0.01 and _on([values[0] * ratio**place for place in range(len(values))], values, widths):
        return _too_regular(facts, reading, "grow by exactly the same factor")
    return Checked(1)


def _on(line: list[float], values: list[float], widths: list[float]) -> bool:
    return all(abs(one - other) <= width for one, other, width in zip(line, values, widths, strict=True))


def _too_regular(facts: list[Fact], reading: Reading, how: str) -> Checked:
    text = f"{', '.join(fact.text for fact in facts)} {how}: measured values do not."
    return Checked(
        0,
        (
            Finding(
                "too-regular",
                Verdict.SUSPECT,
                text,
                places(facts),
                reading.index,
                None,
                None,
                "fits if they were computed, not measured",
                "It is a model of scaling, not a measurement.",
            ),
        ),
    )


def check_inferred(reading: Reading, page: Page) -> Checked:
    """Computing and communication that are T(1)/N and the rest of T(N), without a word that they were not measured."""
    times = {
        (fact.n, fact.batch, fact.row_labels): fact for table in page.readings for fact in table.of(Quantity.EPOCH_TIME)
    }
    fitting, asked = [], 0
    for fact in reading.of(Quantity.COMMUNICATION):
        alone, whole = times.get((1, fact.batch, fact.row_labels)), times.get((fact.n, fact.batch, fact.row_labels))
        if alone is None or whole is None or fact.n is None or fact.n < 2:
            continue
        asked += 1
        if (whole.span - alone.span / float(fact.n)).meets(fact.span):
            fitting.append(fact)
    if asked < 2 or len(fitting) < asked:
        return Checked()
    said = reading.words.own.lower()
    if any(word in said for word in ("=", "−", "minus", "subtract", "inferred", "difference")):
        return Checked(1)
    text = "Communication is T(N) − T(1) ÷ N, so it was not measured: it holds all that does not shrink with N."
    return Checked(
        0,
        (
            Finding(
                "inferred-communication",
                Verdict.EXPLAIN,
                text,
                places(fitting),
                reading.index,
                None,
                None,
                "fits T(N) − T(1) ÷ N",
                "Waiting for the loader is called communication.",
            ),
        ),
    )


RULES = (
    Rule("batch-above-data", "No batch is larger than the data", check_batch, "arithmetic"),
    Rule("flat-over-batch", "Time that does not change with the batch is the loader's", check_flat, "method.md §12"),
    Rule("rank-times", "Ranks of one step take the same time", check_ranks, "method.md §2"),
    Rule("serial-fraction", "The serial fraction follows from the speed-up", check_serial, "Karp & Flatt, 1990"),
    Rule("too-regular", "Measured values are no ramp", check_regular, "statistics"),
    Rule("inferred-communication", "Communication by subtraction is called so", check_inferred, "method.md §3"),
)
