"""How numbers are written for people: the same significant digits everywhere, absent is `–` (method.md §1, §8)."""

import math

from worldsize.results.records import Estimate

DIGITS = 3
"""Significant digits: one more than the intervals of a quiet machine support, so that rounding hides nothing."""
ABSENT = "–"
MINUS = "\N{MINUS SIGN}"


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
