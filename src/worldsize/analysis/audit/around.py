"""What stands around each table of a document: its caption, its section, what follows it, and what holds for all."""

import re
from dataclasses import dataclass, field

from worldsize.documents.document import Document, Heading, Table

_CAPTION = re.compile(r"^\W*(?:table|tab\.|tbl)\s*[\dIVX]+\b", re.IGNORECASE)
SHORT = 160
"""Characters of a paragraph that may be a caption without being called one."""


@dataclass
class Around:
    """The words around one table."""

    printed: str
    """What its format calls its caption."""
    above: str
    """The paragraph, or the heading, above it that is one."""
    section: str
    """The heading of its section, and what stands between that and the first table there."""
    outer: str
    """The same of the sections around that, and what stands in those before it that have no table."""
    leads: bool
    """Whether it is the first table of its section."""
    after: str = ""
    """What follows it, up to the caption or the section of the next one."""

    @property
    def pieces(self) -> tuple[str, ...]:
        """All of them: what one says holds, whatever a later one does."""
        return self.printed, self.above, self.section, self.after, self.outer

    @property
    def caption(self) -> str:
        """Both that are called so."""
        return f"{self.above} {self.printed}".strip()


@dataclass
class _Section:
    level: int
    words: list[str] = field(default_factory=list)
    begins_gap: int | None = None
    """How many paragraphs stand between the last table and its heading."""
    has_table: bool = False


def around(document: Document) -> list[Around]:
    """For each table of a document, in their order."""
    found: list[Around] = []
    gaps: list[list[str]] = [[]]
    """What stands before each table, and after the last."""
    kept: list[int] = []
    """How much of each belongs to the table before it."""
    sections = [_Section(0)]
    for block in document.blocks:
        if isinstance(block, Table):
            caption = _caption(gaps[-1])
            begin = next((each.begins_gap for each in sections if each.begins_gap is not None), len(gaps[-1]))
            kept.append(min(begin, len(gaps[-1]) - len(caption)))
            found.append(_of_table(block, caption, sections))
            for section in sections:
                section.has_table, section.begins_gap = True, None
            gaps.append([])
        else:
            if isinstance(block, Heading):
                _enter(sections, block.level, len(gaps[-1]))
            if not sections[-1].has_table:
                sections[-1].words.append(block)
            gaps[-1].append(block)
    for each, gap, count in zip(found, gaps[1:], [*kept[1:], len(gaps[-1])], strict=True):
        each.after = "\n".join(gap[:count])
    return found


def _enter(sections: list[_Section], level: int, before: int) -> None:
    """A section begins; those that it ends and that have no table hold for all that follows."""
    while sections[-1].level >= level:
        ended = sections.pop()
        if not ended.has_table and not sections[-1].has_table:
            sections[-1].words += ended.words
    sections.append(_Section(level, begins_gap=before))


def _of_table(table: Table, caption: list[str], sections: list[_Section]) -> Around:
    inner = sections[-1]
    if caption and _CAPTION.match(caption[0]) and not inner.has_table:  # it says nothing of the other tables
        inner.words = inner.words[: len(inner.words) - len(caption)]
    outer = (word for section in reversed(sections[:-1]) for word in section.words)
    return Around(table.caption, " ".join(caption), "\n".join(inner.words), "\n".join(outer), not inner.has_table)


def _caption(gap: list[str]) -> list[str]:
    """From the last paragraph that begins with "Table k"; else the last short one, as a heading is."""
    for place in range(len(gap) - 1, -1, -1):
        if _CAPTION.match(gap[place]):
            return gap[place:]
    last = gap[-1:]
    return last if last and (len(last[0]) < SHORT or last[0].rstrip().endswith(":")) else []
