"""Sentences that claim a ratio or a rate: "3.8 times faster on 4 GPUs", "92 % efficiency", "980 images/s on 8 GPUs"."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from worldsize.analysis.audit.facts import Reading
from worldsize.analysis.audit.meaning import WORKERS
from worldsize.analysis.audit.numbers import Printed, printed
from worldsize.analysis.audit.rules.elsewhere import of_something_else

NUMBER = r"(\d+(?:\.\d+)?)"
_ON = rf"[^.;\n]{{0,50}}?\b(?:on|with|using|at|across|over|for|to)\s+(?:n\s*=\s*)?(\d+)\s*(?:{WORKERS}\b|nodes?\b)?"
_SPEEDUP = (
    re.compile(
        rf"{NUMBER}\s*(?:[x×]|times)\s*(?:as fast|faster|speed-?\s?up|higher throughput|the throughput|quicker)(?:{_ON})?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"speed-?\s?up (?:of|is|reaches|=|to)\s*(?:about |nearly |up to )?{NUMBER}\s*(?:[x×]|times)?(?:{_ON})?",
        re.IGNORECASE,
    ),
)
_EFFICIENCY = (
    re.compile(
        rf"{NUMBER}\s*(?:%|percent)\s*(?:parallel |scaling |weak scaling |strong scaling )*efficien\w*(?:{_ON})?",
        re.IGNORECASE,
    ),
    re.compile(
        rf"efficien\w*\s*(?:of|is|was|reaches|stays at|remains|(?:drops|falls) to|=|to|:|at)?\s*\(?(?:about |nearly |up to |only |[~≈]\s?)?{NUMBER}\s*(?:%|percent)(?:{_ON})?",
        re.IGNORECASE,
    ),
)
_LESS = re.compile(
    rf"(?:takes|needs|by)?\s*{NUMBER}\s*(?:%|percent)\s*(less time|faster|slower|shorter|longer|more time|less)(?:{_ON})?",
    re.IGNORECASE,
)
_REDUCED = re.compile(
    rf"(?:reduc\w+|cut\w*|short\w+)[^.;\n]{{0,40}}?time[^.;\n]{{0,20}}?\bby\s*{NUMBER}\s*(?:%|percent)(?:{_ON})?",
    re.IGNORECASE,
)
_HIGHER = re.compile(
    rf"(?<![/\d.]){NUMBER}\s*(?:[x×]|times)\s*(?:higher|greater|better|more)\b(?:{_ON})?", re.IGNORECASE
)
_BARE = re.compile(rf"{NUMBER}\s*[x×]\s+(?:on|with|using|at|across)\s+(\d+)\s*{WORKERS}\b", re.IGNORECASE)
_OVER = re.compile(
    rf"{NUMBER}\s*[x×]\s+(?:over|compared (?:to|with)|relative to|versus|vs\.?|against)\s+(?:the |a |our )?(?!cpus?\b)\w(?:{_ON})?",
    re.IGNORECASE,
)
_OF_SPEED = re.compile(r"\b(?:throughput|speed|faster|scal\w+|images|samples|tokens|performance)", re.IGNORECASE)
_OF_SIZE = re.compile(r"\b(?:memory|bandwidth|loss|batch|accuracy|error|cost|price|cheaper|larger)", re.IGNORECASE)
"""What is said of memory or accuracy is no speed-up."""
_OF_OTHER = re.compile(
    rf"{_OF_SIZE.pattern}|\b(?:messages?|bytes?|traffic|latency|volume|sizes?|flops?|peak|parameters?|compress\w*|accumulat\w*)\b",
    re.IGNORECASE,
)
"""Nor is what is said of these, where nothing else says that it is of speed."""
_WHAT = r"(?:images?|imgs?|samples?|tokens?|seq(?:uence)?s?|sentences|examples)\s?(?:/|per)\s?s(?:ec(?:ond)?)?s?"
_RATES = (
    re.compile(
        rf"(\d[\d,]*(?:\.\d+)?k?)\s+{_WHAT}\b[^.;\n]{{0,25}}?\b(?:on|with|using|at|across)\s+(\d+)\s*{WORKERS}\b", re.I
    ),
    re.compile(rf"(?<![\d.])(\d[\d,]*(?:\.\d+)?k?)\s+{_WHAT}\s?(?:/|per )\s?(){WORKERS}\b", re.I),
    re.compile(rf"{_WHAT}\s*[:=]\s*(\d[\d,]*(?:\.\d+)?k?)\s+(?:on|with|using|at|across)\s+(\d+)\s*{WORKERS}\b", re.I),
)
_WORDED = {"two": 2, "three": 3, "four": 4, "eight": 8, "sixteen": 16, "thirty-two": 32, "sixty-four": 64}
Kind = Literal["speed-up", "throughput", "over", "efficiency", "less", "faster", "slower", "rate"]
RATIOS = ("speed-up", "throughput", "over")
"""Kinds that are a factor; the others are in percent."""


@dataclass(frozen=True)
class Claim:
    """What a sentence says; `n` is None where it names none."""

    kind: Kind
    number: Printed
    n: int | None
    base: int | None
    """Where a sentence names two counts: "from 1 GPU to 8 GPUs"."""
    sentence: str
    each: bool = False
    """A rate of one worker."""


def claims_of(reading: Reading) -> Iterator[Claim]:
    """What the sentences around a table claim of it."""
    for sentence in _sentences(reading):
        yield from _matches("speed-up", _SPEEDUP, sentence)
        if _OF_SPEED.search(sentence) and not _OF_SIZE.search(sentence):
            yield from _matches("throughput", (_HIGHER, _BARE), sentence)
        if not _OF_OTHER.search(sentence):
            yield from _matches("over", (_OVER,), sentence)
        yield from _rates(sentence)
        yield from _matches("efficiency", _EFFICIENCY, sentence)
        yield from _matches("less", (_REDUCED,), sentence)
        yield from _faster(sentence)


def _sentences(reading: Reading) -> Iterator[str]:
    """The sentences that may claim something of a table."""
    text = reading.words.own
    if reading.index == 0 and reading.words.text != text:
        text = reading.words.text
    for sentence in re.split(r"(?<=[.;!?])\s+|\n", text):
        if re.search(r"speed-?\s?up\s*(?:\([^)]*\))?\s*=", sentence, re.IGNORECASE):
            continue  # a definition
        if re.search(r"\beach\)", sentence):
            continue  # "2 nodes with 4 GPUs each": N is not one number
        if not of_something_else(sentence, reading):
            yield sentence


def _matches(kind: Kind, patterns: tuple[re.Pattern[str], ...], sentence: str) -> Iterator[Claim]:
    for pattern in patterns:
        for match in pattern.finditer(sentence):
            number = printed(match[1] + ("" if kind in RATIOS else "%"))
            if number is not None:
                base, largest = _workers_in(sentence)
                n = int(match[2]) if match[2] and base is None else largest
                yield Claim(kind, number, n, base, sentence.strip())


def _rates(sentence: str) -> Iterator[Claim]:
    for pattern in _RATES:
        for match in pattern.finditer(sentence):
            number = printed(match[1])
            if number is not None:
                each = match[2] == ""
                n = _workers_in(sentence)[1] if each else int(match[2])
                yield Claim("rate", number, n, None, sentence.strip(), each)


def _workers_in(sentence: str) -> tuple[int | None, int | None]:
    """The least and the largest of the counts that a sentence names; no least where it names one."""
    words = re.sub(rf"\b(?:one|an?|single|a single)[ -](?={WORKERS}\b)", "1 ", sentence.lower())
    words = re.sub(r"\bone(?=\W*$)", "1 gpu", words)  # "… on 64 GPUs than on one"
    for word, count in _WORDED.items():
        words = re.sub(rf"\b{word}[ -](?={WORKERS}\b)", f"{count} ", words)
    counts = {
        int(each)
        for each in re.findall(
            rf"(?<![\d.,])(\d{{1,5}})[ -]{WORKERS}\b(?!-?\s?(?:hours?|minutes?|seconds?|days?)\b)", words
        )
    }
    counts |= {int(each) for each in re.findall(rf"\bfrom (\d{{1,5}}) to \d{{1,5}}[ -]{WORKERS}\b", words)}
    return (min(counts) if len(counts) > 1 else None), max(counts, default=None)


def _faster(sentence: str) -> Iterator[Claim]:
    for match in _LESS.finditer(sentence):
        word = match[2].lower()
        kind: Kind | None = None
        if word in ("faster", "slower"):
            kind = "faster" if word == "faster" else "slower"
        elif word == "shorter" or ("less" in word and "time" in sentence.lower()):
            kind = "less"
        if kind is not None:
            number = printed(f"{match[1]}%")
            if number is not None and not _REDUCED.search(sentence):
                base, largest = _workers_in(sentence)
                n = int(match[3]) if match[3] and base is None else largest
                yield Claim(kind, number, n, base, sentence.strip())


def short(sentence: str) -> str:
    """As much of a sentence as a finding shows."""
    return sentence if len(sentence) <= 90 else f"{sentence[:87]}…"
