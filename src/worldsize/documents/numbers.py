"""What counts as a number in a printed table, and the marks that stand around it."""

import re
from functools import lru_cache

_DIGITS = r"(?:\d{1,3}(?:[,' ]\d{3})+|\d+)(?:[.,]\d+|\.)?|\.\d+"
_POWER = r"(?:[eE][+\-−]?\d+|\s?[×x·*]\s?10\^?[+\-−]?\d+|\^[+\-−]?\d+)?"
_THING = r"imgs?|images?|samples?|tokens?|tok|its?|iters?|steps?|ex|examples?|seqs?|items?|frames?|epochs?|sentences?"
_RATE = rf"(?:{_THING})/(?:s|sec|second|min|h)"
_UNIT = (
    r"(?:\s?(?:%|[×xX]|[mµμun]?s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|[kKMGTP]?W|k?J|[kMG]?Hz"
    rf"|[kKMGTP](?:i?[Bb](?:/s|ps|it/s)?)?|B(?:/s)?|[KMGTP]?FLOP(?:s|S|/s)?|{_RATE}))?"
)
_ONE = rf"[+\-−–±~≈<>≤≥]{{0,2}}\s?(?:{_DIGITS}){_POWER}{_UNIT}"
_CLOCK = r"\d+:\d\d(?::\d\d)?(?:\.\d+)?|(?:\d+\s?h\s?)?\d+\s?m(?:in)?\s?\d+(?:\.\d+)?\s?s|\d+\s?h\s?\d+\s?m(?:in)?"
_VALUE = re.compile(rf"\(?(?:{_ONE}(?:\s?(?:±|\+/-|\+-)\s?{_ONE})?(?:\s?[(\[]{_ONE}[)\]])?|{_CLOCK})\)?")
LONGEST = 60
"""Characters of an entry that may still be a number."""

UNIT = re.compile(_UNIT.removesuffix("?").replace(r"\s?", "", 1))
"""A unit that stands alone, as after a blank."""

COUNTED = re.compile(
    r"(?:gpu|node|worker|process|rank|device|card|core|thread|host|replica|machine|server)(?:e?s)?\b", re.IGNORECASE
)
"""What a scaling table counts."""

MISSING = frozenset(("-", "--", "---", "–", "—", "n/a", "na", "nan", "oom", "none", "null", "n.a.", "inf", "?"))
"""What is printed where there is no number; in lower case."""

_SIGNS = "*∗†‡§¶"
_SUPER = "¹²³⁰⁴⁵⁶⁷⁸⁹ᵃᵇᶜᵈᵉᶠᵍʰ"
_MARKS = re.compile(rf"\s?(?:\^?[{_SIGNS}]+|\^\[?[a-z0-9]{{1,2}}\]?|[{_SUPER}]+|\[[a-z0-9]{{1,2}}\])$")
_POWER_OF = re.compile(r"(?:.*[×x·*]\s?)?10|2")
_UNSEEN = str.maketrans("", "", "\u200b\u200c\u200d\u2060\ufeff\u00ad")
_BOLD = re.compile(r"(\*\*|__)(?=\S)(.*\S)\1")
_LEANING = re.compile(r"([*_`])(?=\S)(.*[^\s*_`])\1")


@lru_cache(maxsize=1 << 14)
def is_number(text: str) -> bool:
    """Whether an entry is a number, alone or with its unit or its uncertainty."""
    return 0 < len(text) <= LONGEST and _VALUE.fullmatch(text) is not None


def is_missing(text: str) -> bool:
    """Whether an entry says that there is no number; an empty one says nothing."""
    return text.lower() in MISSING


def is_word(text: str) -> bool:
    """Whether an entry is neither empty nor a number nor the lack of one."""
    return bool(text) and not is_missing(text) and not is_number(text)


def tidy(text: str) -> str:
    """Text with one blank wherever there was white space, and none at its ends."""
    return " ".join(text.translate(_UNSEEN).split())


def unmarked(text: str) -> str:
    """A number without the footnote marks around it; any other text as it is."""
    if len(text) > LONGEST or not any(letter.isdigit() for letter in text):
        return text
    bare = text.lstrip(_SIGNS).lstrip() if is_number(text.lstrip(_SIGNS).lstrip().rstrip(_SIGNS)) else text
    for _ in range(3):  # 12.3*†^a
        mark = _MARKS.search(bare)
        if mark is None:
            break
        raised = mark[0].lstrip().removeprefix("^")
        if raised.isdigit() and _POWER_OF.fullmatch(bare[: mark.start()]):  # 2^20 and 10³ are numbers
            break
        bare = bare[: mark.start()]
    return bare if is_number(bare) else text


def unbolded(text: str) -> tuple[str, bool]:
    """Text without the Markdown marks around all of it, and whether they made it bold."""
    bold = _BOLD.fullmatch(text)
    if bold and bold[1] not in bold[2]:
        return unbolded(bold[2])[0], True
    leaning = _LEANING.fullmatch(text)
    return (leaning[2] if leaning and leaning[1] not in leaning[2] else text), False
