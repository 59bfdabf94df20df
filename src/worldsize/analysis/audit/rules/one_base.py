"""One base for all rows: each ratio may fit some value that the base was rounded from, and no value all of them."""

from worldsize.analysis.audit.numbers import EPSILON
from worldsize.analysis.audit.quantities import TIMES, Quantity
from worldsize.analysis.audit.readings import Way
from worldsize.analysis.audit.series import Series

ENOUGH = 3
"""So many rows must agree on a base, and more than do not, before the others are wrong."""


def without_base(target: Series, way: Way, asked: tuple[int, ...]) -> list[int]:
    """The N whose ratio fits no base that most of the others fit; none where one base fits all, or too few agree."""
    if way.absolute or way.across or way.source.quantity not in (*TIMES, Quantity.RATE):
        return []
    bases = {n: found for n in asked if (found := _base(target, way, n)) is not None}
    ends = [low for low, _ in bases.values()]
    held = [
        [n for n, (low, high) in bases.items() if low <= end * (1 + EPSILON) and end <= high * (1 + EPSILON)]
        for end in ends
    ]
    most = max(held, key=len, default=[])
    odd = [n for n in bases if n not in most]
    return odd if len(most) >= ENOUGH and len(most) > 2 * len(odd) else []


def _base(target: Series, way: Way, n: int) -> tuple[float, float] | None:
    """The values of the base with which the ratio of N fits; ratios of times grow with it, of rates shrink."""
    value, asked, base = way.value(n), target.by_n[n].span, way.source.by_n[way.source.base].span
    if value is None or min(value.low, asked.low, base.low) <= 0:
        return None
    if way.source.quantity is Quantity.RATE:
        low, high = value.low * base.high / asked.high, value.high * base.low / asked.low
    else:
        low, high = asked.low * base.high / value.high, asked.high * base.low / value.low
    return max(low, base.low), min(high, base.high)
