"""How numbers of a generated study are printed: rounded or cut off, in a unit, with what stands around them."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal

UNITS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Style:
    """How a column prints its numbers."""

    digits: int
    """Decimals, or significant digits."""
    significant: bool = False
    cut: bool = False
    """Truncated, not rounded."""
    scale: float = 1.0
    """What one printed unit is worth: 1e-3 for milliseconds, 0.01 for percent."""
    suffix: str = ""
    """Printed behind every number: "x", " %", "k"."""
    commas: bool = False
    strip: bool = False
    """Zeros at the end of decimals are left out, as `round()` leaves them out."""
    spread: float = 0.0
    """Printed as ± behind the number: this share of it; 0 for none."""

    def decimals(self, value: float) -> int:
        """Decimals of one printed value."""
        if not self.significant or value == 0:
            return 0 if self.significant else self.digits
        return max(0, self.digits - 1 - math.floor(math.log10(abs(value / self.scale)) + 1e-12))

    def plain(self, value: float) -> str:
        """The digits alone."""
        places = self.decimals(value)
        exact = Decimal(repr(value / self.scale))
        exact = exact.quantize(Decimal("1e-12")) if self.cut else exact  # 0.9 / 0.01 is 90, not 89.999…
        shown = exact.quantize(Decimal(1).scaleb(-places), rounding=ROUND_DOWN if self.cut else ROUND_HALF_UP)
        text = f"{shown:,f}" if self.commas else f"{shown:f}"
        return text.rstrip("0").rstrip(".") if self.strip and "." in text else text

    def text(self, value: float) -> str:
        """A cell."""
        around = ""
        if self.spread:
            places = self.decimals(value)
            around = f" ± {max(abs(value) * self.spread / self.scale, 10.0**-places):.{places}f}"
        return f"{self.plain(value)}{around}{self.suffix}"

    def number(self, value: float) -> float:
        """What a reader of the cell takes the value to be."""
        return float(self.plain(value).replace(",", "")) * self.scale

    def width(self, value: float) -> float:
        """The last printed digit as a share of the value."""
        return float(10.0 ** -self.decimals(value) * self.scale / abs(value)) if value else 0.0


def drawn(rng: random.Random, values: Sequence[float], scale: float = 1.0, least: int = 3) -> Style:
    """A style in which the smallest value keeps at least two digits, and mostly `least`."""
    least = least if rng.random() < 0.85 else 2
    smallest = min((abs(value) / scale for value in values if value), default=1.0)
    needed = max(0, least - 1 - math.floor(math.log10(smallest)))
    cut, strip = rng.random() < 0.3, rng.random() < 0.15
    if needed > 4 or rng.random() < 0.35:
        return Style(rng.randint(least, 6), significant=True, cut=cut, scale=scale, strip=strip)
    return Style(min(4, rng.randint(needed, needed + 2)), cut=cut, scale=scale, strip=strip)


def large(rng: random.Random, values: Sequence[float]) -> Style:
    """A style for throughputs: thousands with commas or as "12.3k", or plain."""
    smallest = min(values)
    if smallest >= 2e6 and rng.random() < 0.5:
        return Style(rng.randint(1, 3), scale=1e6, suffix="M", cut=rng.random() < 0.3)
    if smallest >= 2000 and rng.random() < 0.2:
        return Style(rng.randint(1, 2), scale=1e3, suffix=rng.choice(("k", "K")), cut=rng.random() < 0.3)
    style = drawn(rng, values)
    return replace(style, commas=rng.random() < 0.4)


def fractions(rng: random.Random, values: Sequence[float], heading: str) -> Style:
    """A style for shares and efficiencies: "95 %" or 0.95; only as % where the heading says so."""
    if "%" in heading or rng.random() < 0.6:
        sign = "" if "%" in heading and rng.random() < 0.7 else rng.choice((" %", "%"))
        return Style(rng.randint(0, 2), cut=rng.random() < 0.3, scale=0.01, suffix=sign)
    return Style(rng.randint(2, 4), cut=rng.random() < 0.3)


def times(rng: random.Random, values: Sequence[float]) -> tuple[str, Style]:
    """A unit in which times of this size are printed, and their style."""
    smallest = min(value for value in values if value > 0)
    fitting = [unit for unit, scale in UNITS.items() if 0.3 <= smallest / scale < 3000]
    unit = "s" if "s" in fitting and rng.random() < 0.6 else rng.choice(fitting or ["ms"])
    return unit, drawn(rng, values, UNITS[unit])
