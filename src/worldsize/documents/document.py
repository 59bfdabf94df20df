"""What every reader of a document gives: paragraphs and tables, in their order."""

from dataclasses import dataclass, field
from typing import Self

FORMATS = ("markdown", "html", "csv", "latex", "text", "json")


@dataclass(frozen=True)
class Table:
    """A table as it was printed: every entry is text, trimmed, with marks of the format taken off."""

    header: tuple[tuple[str, ...], ...]
    """Rows of the heading, outermost first; a cell that spans several columns is repeated in each. May be empty."""
    rows: tuple[tuple[str, ...], ...]
    """All other rows; each is as long as each row of the heading. A cell that spans rows is repeated in each."""
    line: int
    """Where it begins in the file, from 1; 0 where that is unknown."""
    caption: str = ""
    """What the format itself calls its caption (`<caption>`, `\\caption`); words above it are paragraphs."""
    bold: frozenset[tuple[int, int]] = field(default_factory=frozenset)
    """Cells (row of `rows`, column) that were printed bold."""


class Heading(str):
    """The heading of a section: a paragraph that also says what follows it."""

    __slots__ = ("level",)
    level: int
    """1 for the title of a document, larger ones for sections within."""

    @classmethod
    def of(cls, text: str, level: int) -> Self:
        """This text, of this level."""
        made = cls(text)
        made.level = level
        return made


@dataclass(frozen=True)
class Document:
    """Paragraphs (text) and tables of a file, in their order; headings are paragraphs of a class of their own."""

    name: str
    format: str
    """One of FORMATS."""
    blocks: tuple[str | Table, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables alone."""
        return tuple(block for block in self.blocks if isinstance(block, Table))

    @property
    def text(self) -> str:
        """All paragraphs and captions, one to a line."""
        words = (block.caption if isinstance(block, Table) else block for block in self.blocks)
        return "\n".join(each for each in words if each)
