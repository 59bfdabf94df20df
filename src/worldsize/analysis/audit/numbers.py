"""Numbers as they were printed: each is an interval, as wide as its last digit allows (method.md §16)."""

import math
import re
from dataclasses import dataclass, field
from typing import Self

from worldsize.analysis.audit.units import Unit, unit_of

EPSILON = 1e-9
"""Relative; for what float arithmetic adds to a number that fits exactly."""


@dataclass(frozen=True)
class Span:
    """An interval; its arithmetic is exact where each number stands once in a formula."""

    low: float
    high: float
    at: float | None = field(default=None, compare=False)
    """The value as printed, or computed from values as printed."""

    @classmethod
    def exact(cls, value: float) -> Self:
        """One value."""
        return cls(value, value)

    @property
    def mid(self) -> float:
        """What a person would compute: of printed values; else the middle."""
        return (self.low + self.high) / 2 if self.at is None else self.at

    def __add__(self, other: "Span") -> "Span":
        return Span(self.low + other.low, self.high + other.high, self.mid + other.mid)

    def __sub__(self, other: "Span") -> "Span":
        return Span(self.low - other.high, self.high - other.low, self.mid - other.mid)

    def __mul__(self, other: "Span | float") -> "Span":
        if not isinstance(other, Span):
            other = Span(other, other)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(min(ends), max(ends), self.mid * other.mid)

    __rmul__ = __mul__

    def __truediv__(self, other: "Span | float") -> "Span":
        """Of a divisor that may be 0 nothing is known."""
        if not isinstance(other, Span):
            other = Span(other, other)
        if other.low <= 0 <= other.high:
            return Span(-math.inf, math.inf)
        return self * Span(1 / other.high, 1 / other.low, 1 / other.mid if other.mid else None)

    def meets(self, other: "Span") -> bool:
        """Whether some value lies in both."""
        room = EPSILON * max(abs(each) for each in (self.low, self.high, other.low, other.high) if math.isfinite(each))
        return self.low <= other.high + room and other.low <= self.high + room

    def around(self, value: float) -> bool:
        """Whether a value lies in it."""
        return self.meets(Span(value, value))


@dataclass(frozen=True)
class Printed:
    """A number of a table or a sentence, in the unit that it was printed with."""

    text: str
    value: float
    span: Span
    unit: Unit | None = None
    """What stands beside the number itself; the heading may have one too."""
    spread: float | None = None
    """What follows a ±."""

    @property
    def digits(self) -> str:
        """The digits alone, as printed."""
        found = NUMBER.search(self.text)
        return found.group(0) if found else self.text

    @property
    def whole(self) -> bool:
        """A count: no point, no exponent."""
        return re.fullmatch(r"[-+]?[\d,' ]+", self.digits) is not None


NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:[,' ]\d{3})+(?:\.\d+)?|\d+\.\d+|\.\d+|\d+\.?)(?:[eE][-+]?\d+)?")
CLOCK = re.compile(r"(?:(\d+):)?(\d{1,2}):(\d{2}(?:\.\d+)?)")
_PARTED = (
    (86400.0, r"(?P<d>\d+)\s*(?:d|days?|天)"),
    (3600.0, r"(?P<h>\d+)\s*(?:h|hrs?|hours?|std|小时)\.?"),
    (60.0, r"(?P<m>\d+)\s*(?:m|mins?|minutes?|分钟?)\.?"),
    (1.0, r"(?P<s>\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?|sek|秒)\.?"),
)
HOURS = re.compile("".join(rf"(?:{pattern}[\s,]*)?" for _, pattern in _PARTED), re.IGNORECASE)
"""A time in two or more units: "3h 20m", "1 h 2 min", "4m 12.5s", "2 days 3 h"; `is_parted` says whether it is one."""
TIMES_TEN = re.compile(r"\s*[×x·*]\s*10\s*(?:\^|\*\*)?\s*\{?([-+]?\d+)\}?")
MAGNITUDES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
SIGNIFICANT = 2
"""Digits of a whole number that count in any case: 1,200 may stand for 1,150 to 1,300, 40 for 39.5 to 41."""


def printed(text: str) -> Printed | None:
    """The first number of a cell or a word; None where it has none that stands by itself."""
    found = all_printed(text)
    return found[0] if found else None


def all_printed(text: str) -> list[Printed]:
    """Each number of a cell: "25.86 (1.40×)" has two; what follows a ± is the spread of the one before."""
    clean = _plain(text)
    if (clock := _clock(clean)) is not None:
        return [clock]
    found: list[Printed] = []
    place = 0
    while (match := NUMBER.search(clean, place)) is not None:
        before = clean[: match.start()].rstrip()
        number, place = _one(clean, match)
        if before and before[-1].isalpha() and match.start() == len(before):  # the 100 of V100
            continue
        if before.endswith(("±", "+/-", "+-")) and found:
            last = found.pop()
            found.append(Printed(last.text, last.value, last.span, last.unit or number.unit, abs(number.value)))
        else:
            found.append(number)
    return found


def whole_number(text: str) -> int | None:
    """A count: "1,024", "4k"; None for anything else."""
    number = printed(text)
    if number is None or not float(number.value).is_integer() or abs(number.value) > 1e15:
        return None
    return int(number.value)


def _plain(text: str) -> str:
    """Minus signs, narrow blanks and quotes as the keyboard has them."""
    for odd, usual in (("−", "-"), ("–", "-"), ("\u202f", " "), ("\u00a0", " "), ("’", "'"), ("～", "~")):
        text = text.replace(odd, usual)
    return text.strip()


def _one(text: str, match: re.Match[str]) -> tuple[Printed, int]:
    """The number at a match with its magnitude and unit, and where the text goes on."""
    digits, end = match.group(0), match.end()
    if digits.startswith("-") and match.start() and text[match.start() - 1].isalnum():
        digits = digits[1:]  # a hyphen: 8-16, batch-32
    plain = re.sub("[,' ]", "", digits)
    value, last = float(plain), _last_digit(plain)
    if (power := TIMES_TEN.match(text, end)) is not None and abs(int(power.group(1))) < 300:
        scale, end = 10.0 ** int(power.group(1)), power.end()
        value, last = value * scale, last * scale
    unit, end = _unit_after(text, end)
    if unit is None and (letter := re.match(r"\s?([kKMBGT])(?![\w/])", text[end:])) is not None:
        scale = MAGNITUDES[letter.group(1).lower()]
        last = scale * _last_digit(plain, whole=False)
        value, end = value * scale, end + letter.end()
        unit, end = _unit_after(text, end)
    if not math.isfinite(value):
        value, last = 0.0, math.inf
    return Printed(text[match.start() : end].strip(), value, _interval(value, last), unit), end


def _interval(value: float, last: float) -> Span:
    """Rounded or truncated: half a last digit towards zero, a whole one away from it."""
    near, far = abs(value) - last / 2, abs(value) + last
    return Span(near, far, value) if value >= 0 else Span(-far, -near, value)


def _last_digit(plain: str, *, whole: bool = True) -> float:
    """The worth of the last digit that counts; of a whole number zeros at the end may not."""
    mantissa, _, exponent = plain.lower().partition("e")
    scale = 10.0 ** max(-300, min(300, int(exponent))) if exponent else 1.0
    if "." in mantissa and not mantissa.endswith("."):
        return float(scale * 10.0 ** -len(mantissa.partition(".")[2]))
    digits = mantissa.strip("+-.").lstrip("0")
    zeros = len(digits) - len(digits.rstrip("0")) if whole and not exponent else 0
    return float(scale * 10.0 ** max(0, min(zeros, len(digits) - SIGNIFICANT)))


def _unit_after(text: str, end: int) -> tuple[Unit | None, int]:
    """The unit that follows a number at once or after a blank: "5.2ms", "46 MB", "1.9×", "95 %"."""
    match = re.match(r"\s?(%|[×x](?![a-zA-Z\d])|[a-zA-Zµμ]+(?:\s?/\s?[a-zA-Z]+)?)", text[end:])
    if match is None:
        return None, end
    for words in (match.group(1), match.group(1).split("/")[0].strip()):
        unit = unit_of(words)
        if unit is not None:
            return unit, end + text[end:].index(words) + len(words)
    return None, end


def _clock(text: str) -> Printed | None:
    """A time such as 1:23:45, 2:05, 1h 5m 3s or 3h 20m, in seconds."""
    if (parted := _parted(text)) is not None:
        return parted
    match = CLOCK.fullmatch(text)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    value = 3600.0 * int(hours or 0) + 60.0 * int(minutes) + float(seconds)
    return Printed(text, value, _interval(value, _last_digit(seconds)), unit_of("s"))


def is_parted(text: str) -> bool:
    """Whether a text is a time in two or more units."""
    found = HOURS.fullmatch(text) if len(text) < LONGEST_TIME else None
    return found is not None and sum(part is not None for part in found.groups()) > 1


LONGEST_TIME = 40
"""Characters of a time in several units."""


def _parted(text: str) -> Printed | None:
    if not is_parted(text):
        return None
    parts = HOURS.fullmatch(text).groups()  # type: ignore[union-attr]
    given = [(scale, part) for (scale, _), part in zip(_PARTED, parts, strict=True) if part is not None]
    value = sum(scale * float(part) for scale, part in given)
    scale, last = given[-1]
    return Printed(text, value, _interval(value, scale * (_last_digit(last) if "." in last else 1.0)), unit_of("s"))
