"""Charts, tables and paragraphs that answer one question."""

from dataclasses import dataclass, replace

from worldsize.report.svg import Drawing
from worldsize.report.tables import Table

BarPart = tuple[str, float]
"""A part of PARTS, and its length as a share of the longest row's."""


@dataclass(frozen=True)
class Fold:
    """A table or a chart that the page shows on demand; its section has it among its own."""

    title: str
    table: Table | None = None
    file: str = ""
    """Id of the section's table that has these rows."""
    bars: tuple[tuple[BarPart, ...], ...] = ()
    """A stacked bar for each row; none where there is nothing to draw."""
    drawing: Drawing | None = None


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    id: str
    title: str
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    paragraphs: tuple[str, ...] = ()
    """Made from the numbers, one after the other."""
    folds: tuple[Fold, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.drawings or self.paragraphs or any(table.rows for table in self.tables))

    @property
    def open_drawings(self) -> list[Drawing]:
        """The charts that are not shown on demand only."""
        folded = {fold.drawing.id for fold in self.folds if fold.drawing}
        return [drawing for drawing in self.drawings if drawing.id not in folded]

    @property
    def open_tables(self) -> list[Table]:
        """The tables with rows that are not shown on demand only."""
        folded = {fold.file for fold in self.folds}
        return [table for table in self.tables if table.rows and table.id not in folded]


def with_paragraphs(section: Section, further: tuple[str, ...]) -> Section:
    """The same section with some paragraphs behind its own."""
    return replace(section, paragraphs=(*section.paragraphs, *further))
