"""Charts, tables and paragraphs that answer one question."""

from dataclasses import dataclass, replace

from worldsize.report.svg import Drawing
from worldsize.report.tables import Table

BarPart = tuple[str, float]
"""A part of PARTS, and its length as a share of the longest row's."""


@dataclass(frozen=True)
class Fold:
    """A table that the page shows on demand."""

    title: str
    table: Table
    file: str
    """Id of the table among the files that has these rows."""
    bars: tuple[tuple[BarPart, ...], ...] = ()
    """A stacked bar for each row; none where there is nothing to draw."""


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
    def open_tables(self) -> list[Table]:
        """The tables with rows that are not shown on demand only."""
        folded = {fold.file for fold in self.folds}
        return [table for table in self.tables if table.rows and table.id not in folded]


def with_paragraphs(section: Section, further: tuple[str, ...]) -> Section:
    """The same section with some paragraphs behind its own."""
    return replace(section, paragraphs=(*section.paragraphs, *further))
