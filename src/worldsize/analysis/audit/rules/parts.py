"""Parts and wholes: parts of a step, shares, and rows that sum up or average others."""

import re
from collections.abc import Iterator

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
from worldsize.analysis.audit.languages import in_english
from worldsize.analysis.audit.meaning import meaning
from worldsize.analysis.audit.numbers import Span
from worldsize.analysis.audit.quantities import PARTS, TIMES, Quantity
from worldsize.analysis.audit.series import only

KINDS = {
    Quantity.COMMUNICATION: r"comm|sync|reduce|exchange",
    Quantity.COMPUTE: r"comput|forward|backward",
    Quantity.DATA: r"data|load|input",
}
PART_NAMES = (
    r"comm|sync|reduce|exchange|comput|forward|backward|data|load|input|optimi[sz]er|update|copy|idle|wait|other"
)
MISSING = 0.02
"""Shares that sum up to less than 100 % by more than this leave something out."""
WHOLE = ("", "step", "epoch", "iteration", "iter", "wall", "elapsed", "wall-clock", "clock", "end-to-end")
"""What the heading of a whole says besides that it is a time."""


def check_parts(reading: Reading, page: Page) -> Checked:
    """A part is at most the whole, and parts that run one after the other sum up to it."""
    groups = list(_groups(reading))
    kinds = {whole.quantity for wholes, _ in groups for whole in wholes}
    lines = max((_lines(groups, kind) for kind in sorted(kinds)), key=_fitting, default=[])
    if not _fitting(lines) and len(kinds) > 1:  # beside step and epoch parts are those of a step, if nothing says epoch
        epoch = any("epoch" in _heading(reading, part) for _, parts in groups for part in parts)
        lines = _lines(groups, Quantity.EPOCH_TIME if epoch else Quantity.STEP_TIME)
    return together(_parts(whole, parts, reading, 2 * _fitting(lines) > len(lines)) for whole, parts in lines)


_Line = tuple[Fact, list[Fact]]


def _fitting(lines: list[_Line]) -> int:
    return sum(_sum(parts).meets(whole.span) for whole, parts in lines)


def _lines(groups: list[tuple[list[Fact], list[Fact]]], kind: Quantity) -> list[_Line]:
    """The wholes of one kind, each with its parts."""
    found = ((only([whole for whole in wholes if whole.quantity is kind]), parts) for wholes, parts in groups)
    return [(whole, parts) for whole, parts in found if whole is not None]


def _groups(reading: Reading) -> Iterator[tuple[list[Fact], list[Fact]]]:
    """Wholes and parts of each row, or of each column where rows have the quantities."""
    groups: dict[tuple[object, ...], list[Fact]] = {}
    for fact in reading.of(*TIMES, *PARTS):
        groups.setdefault((*_line(reading, fact), fact.n, fact.batch), []).append(fact)
    for times in groups.values():
        wholes = [fact for fact in times if fact.quantity in TIMES and _label(reading, fact) in WHOLE]
        total = [fact for fact in wholes if "total" in _heading(reading, fact)]
        parts = [fact for fact in times if fact not in wholes]
        if wholes and parts:
            yield (total or wholes), parts


def _line(reading: Reading, fact: Fact) -> tuple[str, int]:
    """The row of a fact, or its column in a table whose rows are quantities."""
    if reading.columns[fact.place.column].meaning.quantity is None:
        return "column", fact.place.column
    return "row", fact.place.row


def _label(reading: Reading, fact: Fact) -> str:
    """What its heading says besides the quantity."""
    if _line(reading, fact)[0] == "row":
        return fact.column_label
    row = reading.table.rows[fact.place.row]
    return meaning(row[0]).rest if row else ""


def _sum(parts: list[Fact]) -> Span:
    return Span(sum(part.span.low for part in parts), sum(part.span.high for part in parts))


def _parts(whole: Fact, parts: list[Fact], reading: Reading, others_fit: bool) -> Checked:
    larger = [part for part in parts if part.quantity in PARTS and part.span.low > whole.span.high * (1 + 1e-9)]
    if larger:
        text = f"{larger[0].quantity} of {larger[0].text} is more than the whole {whole.quantity}, {whole.text}."
        return one_finding("parts", Verdict.FAIL, text, [larger[0], whole], changes="The part is not of this whole.")
    total, sums = _sum(parts), " + ".join(part.text for part in parts)
    unit = whole.unit if whole.unit is not None and whole.unit.kind == "time" else None
    value = f"{shown(total * (1 / unit.factor))} {unit.name}" if unit else f"{shown(total)} s"
    overlap = reading.words.overlap and "not overlap" not in reading.words.text
    if len(parts) < 2 or total.meets(whole.span) or overlap:
        return Checked(1)
    if others_fit:
        text = f"{sums} is {value}; {whole.text} is printed for the whole."
        return one_finding(
            "parts", Verdict.FAIL, text, [*parts, whole], value, changes="Some time is in no part, or in two."
        )
    if total.low > whole.span.high and {Quantity.COMPUTE, Quantity.COMMUNICATION} <= {part.quantity for part in parts}:
        text = f"{sums} is {value}, more than the whole of {whole.text}."
        changes = "Possible where communication is hidden behind computing; what is exposed must be said."
        return one_finding("parts", Verdict.EXPLAIN, text, [*parts, whole], value, changes=changes)
    return Checked(1)


def _heading(reading: Reading, fact: Fact) -> str:
    row = reading.table.rows[fact.place.row]
    return in_english(f"{reading.columns[fact.place.column].heading} {row[0] if row else ''}").lower()


def check_shares(reading: Reading, page: Page) -> Checked:
    """A share is its part ÷ the whole, and shares of one whole sum up to 100 %."""
    found = []
    groups: dict[tuple[object, ...], list[Fact]] = {}
    columns: dict[int, list[Fact]] = {}
    for share in reading.of(Quantity.SHARE):
        part, whole = _part_of(reading, share)
        if part is not None and whole is not None:
            found.append(_share(share, part, whole))
        groups.setdefault((*_line(reading, share), share.n, share.batch), []).append(share)
        columns.setdefault(share.place.column, []).append(share)
    down = [shares for shares in columns.values() if _down(shares, reading)]
    found += [_shares(shares, reading, whole=True) for shares in down]
    found += [_shares(shares, reading) for shares in groups.values() if not down]
    return together(found)


def _down(shares: list[Fact], reading: Reading) -> bool:
    """A column whose rows are the parts of one whole, each with a name of its own."""
    names = [reading.table.rows[share.place.row][0].lower() for share in shares]
    parts = sum(re.search(PART_NAMES, name) is not None for name in names)
    alike = all(share.n == shares[0].n for share in shares)
    return len(set(names)) == len(names) > 2 and parts * 2 >= len(names) and alike


def _part_of(reading: Reading, share: Fact) -> tuple[Fact | None, Fact | None]:
    """The time that a share is of, and the whole."""
    words, line = _heading(reading, share), _line(reading, share)
    near = [
        fact
        for fact in reading.facts
        if _line(reading, fact) == line and (fact.n, fact.batch) == (share.n, share.batch)
    ]
    wholes = [fact for fact in near if fact.quantity in TIMES and _label(reading, fact) in WHOLE]
    whole = only([fact for fact in wholes if "total" in _heading(reading, fact)]) or only(wholes)
    for quantity, pattern in KINDS.items():
        if re.search(pattern, words):
            return only([fact for fact in near if fact.quantity is quantity]), whole
    return None, None


def _share(share: Fact, part: Fact, whole: Fact) -> Checked:
    value = part.span / whole.span
    if value.meets(share.span):
        return Checked(1)
    fits = "fits if it is part ÷ the rest" if (part.span / (whole.span - part.span)).meets(share.span) else None
    text = f"{part.text} of {whole.text} is {value.mid:.1%}; {share.text} is printed."
    return one_finding(
        "percent",
        Verdict.FAIL,
        text,
        [share, part, whole],
        f"{value.mid:.1%}",
        fits,
        "The share decides what is called the bottleneck.",
    )


def _shares(shares: list[Fact], reading: Reading, *, whole: bool = False) -> Checked:
    if len(shares) < 2 or any(_kept_apart(share, reading) for share in shares):
        return Checked()
    total = shares[0].span
    for share in shares[1:]:
        total = total + share.span
    if total.low > 1 + 1e-9 and not reading.words.overlap:
        texts = " + ".join(share.text for share in shares)
        return one_finding(
            "percent",
            Verdict.FAIL,
            f"{texts} is {total.mid:.1%}: more than all of it.",
            shares,
            f"{total.mid:.1%}",
            changes="One of the shares is not of this whole.",
        )
    named = {
        quantity for share in shares for quantity, words in KINDS.items() if re.search(words, _heading(reading, share))
    }
    complete = whole or {Quantity.COMMUNICATION, Quantity.COMPUTE} <= named
    if total.high < 1 - MISSING and complete:
        texts = " + ".join(share.text for share in shares)
        return one_finding(
            "percent",
            Verdict.FAIL,
            f"{texts} is {total.mid:.1%}, not 100 %.",
            shares,
            f"{total.mid:.1%}",
            changes="Some of the time is in no part.",
        )
    return Checked(1)


def _kept_apart(share: Fact, reading: Reading) -> bool:
    """Overheads and hidden shares are not parts of one whole."""
    return any(
        word in _heading(reading, share) for word in ("overhead", "hidden", "overlap", "exposed", "util", "peak")
    )


RULES = (
    Rule("parts", "Parts are at most the whole", check_parts, "method.md §3"),
    Rule("percent", "Shares are parts of 100 %", check_shares, "arithmetic"),
)
