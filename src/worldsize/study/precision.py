"""When a cell is known as precisely as was asked, so that its study may end (method.md §8).

Whoever looks again and again, and stops at the first narrow interval, stops where the blocks happen to look alike. Two
rules keep that rare; what they cost is some blocks.
"""

TOLD_BLOCKS = 12
"""Blocks from which on it shows how far they depend on each other. A study that ends with fewer, because they happen to
look alike, is wrong too often; so it ends then only if its ratios are known this many times as narrowly as asked:"""
TOO_FEW = 3
IN_A_ROW = 2
"""Looks in a row, a block apart, at which an interval must be narrow enough."""


class Precision:
    """Remembers since when the interval of each cell has been as narrow as was asked."""

    def __init__(self, asked: float) -> None:
        """`asked` is the half width, as a share of the value."""
        self.asked = asked
        self._since: dict[str, int] = {}
        """Cell → its blocks at the first of the looks without a wide one between."""

    def narrow(self, half_width: float, blocks: int) -> bool:
        """Whether a half width that so many blocks gave is as narrow as was asked, at this look."""
        return half_width * (1 if blocks >= TOLD_BLOCKS else TOO_FEW) <= self.asked

    def reached(self, name: str, half_width: float, blocks: int) -> bool:
        """Whether a cell may end, by the half width that so many blocks gave; each look must be told."""
        if not self.narrow(half_width, blocks):
            self._since.pop(name, None)
            return False
        return blocks >= self._since.setdefault(name, blocks) + IN_A_ROW - 1
