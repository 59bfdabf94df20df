"""Charts, tables and paragraphs that answer one question."""

from dataclasses import dataclass, replace

from worldsize.report.svg import Drawing
from worldsize.report.tables import Table


@dataclass(frozen=True)
class Section:
    """One part of a report."""

    id: str
    title: str
    drawings: tuple[Drawing, ...] = ()
    tables: tuple[Table, ...] = ()
    paragraphs: tuple[str, ...] = ()
    """Made from the numbers, one after the other."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show."""
        return not (self.drawings or self.paragraphs or any(table.rows for table in self.tables))


def with_paragraphs(section: Section, further: tuple[str, ...]) -> Section:
    """The same section with some paragraphs behind its own."""
    return replace(section, paragraphs=(*section.paragraphs, *further))
