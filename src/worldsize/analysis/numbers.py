"""How numbers are written for people: the same significant digits everywhere, absent is `–` (method.md §1, §8)."""

import math

from worldsize.results.records import Estimate

DIGITS = 3
"""Significant digits: one more than the intervals of a quiet machine support, so that rounding hides nothing."""
ABSENT = "–"
MINUS = "\N{MINUS SIGN}"
GIB, MIB = 2**30, 2**20
GB = 10**9
UNITS = ("B", "KiB", "MiB", "GiB")


def number_text(value: float | None) -> str:
    """`value` with three significant digits and separated thousands; `–` if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    exponent = int(f"{abs(value):.{DIGITS - 1}e}".split("e")[1])
    if exponent < -DIGITS - 1:
        text = f"{abs(value):.{DIGITS - 1}e}"
    else:
        rounded = round(abs(value), DIGITS - 1 - exponent)
        text = f"{rounded:,.{max(0, DIGITS - 1 - exponent)}f}"
    return f"{MINUS}{text}" if value < 0 else text


def interval_text(estimate: Estimate, factor: float = 1.0) -> str:
    """`[low, high]` of a 95 % interval times `factor`; empty without one."""
    if estimate.low is None or estimate.high is None:
        return ""
    return f"[{number_text(estimate.low * factor)}, {number_text(estimate.high * factor)}]"


def estimate_text(estimate: Estimate, factor: float = 1.0) -> str:
    """The value times `factor`, with its interval if it has one."""
    return f"{number_text(estimate.value * factor)} {interval_text(estimate, factor)}".strip()


def percent_text(share: float | None) -> str:
    """A share (1 is all) in percent, with the sign."""
    return ABSENT if share is None or not math.isfinite(share) else f"{number_text(100 * share)} %"


def gib_text(size_bytes: float) -> str:
    """Memory: `31.3 GiB`."""
    return f"{number_text(size_bytes / GIB)} GiB"


def payload_text(size_bytes: float) -> str:
    """A message: `4.2 MB`, three digits and a unit of powers of ten (method.md §1)."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes:g} B"


def size_text(size: int) -> str:
    """A size that was chosen: `64 KiB`, in the largest binary unit that leaves a whole number."""
    unit = 0
    while size and size % 1024 == 0 and unit < len(UNITS) - 1:
        size, unit = size // 1024, unit + 1
    return f"{size:,} {UNITS[unit]}"
