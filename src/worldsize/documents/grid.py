"""Cells of any format become a Table: spans are spread, rows made equally long, the heading found."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from worldsize.documents.document import Heading, Table
from worldsize.documents.numbers import is_number, is_word, tidy, unmarked
from worldsize.errors import UsageError

MAX_CELLS = 200_000
"""Entries of all tables of a document."""
MAX_TABLES = 1_000
MAX_SPAN = 1_000
"""Columns or rows of one cell."""
MAX_HEADING = 5
"""Rows of a heading."""


class Cell(NamedTuple):
    """An entry, and how many columns and rows it spans."""

    text: str
    bold: bool = False
    columns: int = 1
    rows: int = 1


EMPTY = Cell("")


class Blocks:
    """Paragraphs and tables of a document, as a reader finds them."""

    def __init__(self) -> None:
        self.found: list[str | Table] = []
        self._cells = 0
        self._tables = 0

    @property
    def has_table(self) -> bool:
        """Whether a table was found."""
        return any(isinstance(block, Table) for block in self.found)

    def add(self, other: "Blocks") -> None:
        """Add all that was found in a part; raises UsageError for too many entries."""
        self.found += other.found
        self._cells += other._cells
        self._tables += other._tables
        if self._cells > MAX_CELLS:
            raise too_many(0)

    def words(self, text: str, level: int = 0) -> None:
        """Add a paragraph, or the heading of a section of this level, unless it is empty."""
        words = tidy(text)
        if words:
            self.found.append(Heading.of(words, level) if level else words)

    def table(
        self,
        rows: Sequence[Sequence[Cell]],
        line: int,
        head: int | None = None,
        caption: str = "",
        *,
        more: bool = False,
    ) -> bool:
        """Add a table whose first `head` rows are its heading, and return whether there was one.

        Without `head`, or if those are empty, the heading is found by what is in the rows. With `more` the format
        knows but one row of a heading, and the next ones may go on with it. Raises UsageError for too many entries.
        """
        wide = spread(rows, line)
        filled = [any(cell.text.strip() for cell in row) for row in wide]
        grid = [row for row, kept in zip(wide, filled, strict=True) if kept]
        self._count(grid, line)
        grid = _even(grid)
        texts = [[tidy(cell.text) for cell in row] for row in grid]
        known = sum(filled[:head]) if head else 0
        found = 0 if head == 0 else known or heading_rows(texts)
        if known and more:
            found += _more_heading(texts, known)
        if len(texts) <= found:
            return False
        named = known < found and not texts[0][0] and bool(texts[found - 1][0])
        heading = spread_groups(texts[:found]) if named or not known else texts[:found]
        kept = _kept_columns(texts, found)
        body = [[unmarked(row[at]) for at in kept] for row in texts[found:]]
        bold = ((y, x) for y, row in enumerate(grid[found:]) for x, at in enumerate(kept) if row[at].bold)
        self.found.append(
            Table(
                header=tuple(tuple(row[at] for at in kept) for row in heading),
                rows=tuple(map(tuple, body)),
                line=line,
                caption=tidy(caption),
                bold=frozenset(bold),
            )
        )
        return True

    def _count(self, grid: Sequence[Sequence[Cell]], line: int) -> None:
        self._cells += len(grid) * max(map(len, grid), default=0)
        self._tables += 1
        if self._cells > MAX_CELLS:
            raise too_many(line)
        if self._tables > MAX_TABLES:
            raise UsageError(
                f"the document holds more than {MAX_TABLES:,} tables\nGive a file with only the tables to check."
            )


def spread(rows: Sequence[Sequence[Cell]], line: int) -> list[list[Cell]]:
    """Rows in which a cell stands in every place that it spans, as HTML counts them.

    Raises UsageError for too many entries.
    """
    from_above: dict[int, tuple[Cell, int]] = {}
    found: list[list[Cell]] = []
    count = 0
    for row in rows:
        wide: list[Cell] = []
        for cell in row:
            _take(wide, from_above)
            for _ in range(min(max(cell.columns, 1), MAX_SPAN)):
                if cell.rows > 1:
                    from_above[len(wide)] = (cell, min(cell.rows, MAX_SPAN) - 1)
                wide.append(cell)
            if count + len(wide) > MAX_CELLS:
                raise too_many(line)
        last = max(from_above, default=-1)
        _take(wide, from_above)
        while len(wide) <= last:
            wide.append(EMPTY)
            _take(wide, from_above)
        count += len(wide)
        found.append(wide)
    return found


def _take(wide: list[Cell], from_above: dict[int, tuple[Cell, int]]) -> None:
    """Put into a row what cells of earlier rows span of it, up to its next free place."""
    while len(wide) in from_above:
        cell, left = from_above.pop(len(wide))
        if left > 1:
            from_above[len(wide)] = (cell, left - 1)
        wide.append(cell)


def too_many(line: int) -> UsageError:
    """What is said of a document that would take too long to check."""
    where = f"up to the table at line {line}" if line else "in its tables"
    return UsageError(
        f"the document holds more than {MAX_CELLS:,} entries {where}\nGive a file with only the tables to check."
    )


def _even(grid: list[list[Cell]]) -> list[list[Cell]]:
    width = max(map(len, grid), default=0)
    return [row + [EMPTY] * (width - len(row)) for row in grid]


def _kept_columns(texts: list[list[str]], head: int) -> list[int]:
    """Columns that are more than space between two others."""
    named = texts[head - 1] if head else [""] * len(texts[0])
    return [at for at, name in enumerate(named) if name or any(row[at] for row in texts[head:])]


def heading_rows(rows: Sequence[Sequence[str]]) -> int:
    """How many rows at the top are a heading, by what is in them.

    The first is one unless it holds numbers alone, or is like the row after it.
    """
    if len(rows) < 2 or not (_words(rows[0]) or _has_corner(rows, 0)) or _alike(rows[0], rows[1]):
        return 0
    head = 1
    while head < min(MAX_HEADING, len(rows) - 1) and _goes_on(rows, head):
        head += 1
    return head


def _goes_on(rows: Sequence[Sequence[str]], at: int) -> bool:
    """Whether a row below a heading is still one: words above numbers, or numbers below the names of groups."""
    row = rows[at]
    if _numbers(row):
        return _has_corner(rows, at) and ("" in rows[at - 1][1:] or len(set(rows[at - 1])) < len(row))
    return any(is_word(text) and any(is_number(below[x]) for below in rows[at + 1 :]) for x, text in enumerate(row))


def _more_heading(rows: Sequence[Sequence[str]], head: int) -> int:
    """Rows that continue the heading: Markdown itself has only one row of it."""
    more = 0
    while head + more < min(MAX_HEADING, len(rows) - 1):
        row = rows[head + more]
        below = rows[head + more + 1]
        if _numbers(row) or not _words(row) or not below[0]:
            break
        # A name in the corner as well, below groups that leave it empty.
        if row[0] and (rows[head + more - 1][0] or "" not in rows[head - 1][1:] or 2 * _numbers(below) <= len(below)):
            break
        more += 1
    return more


def _has_corner(rows: Sequence[Sequence[str]], at: int) -> bool:
    """Whether a row of numbers has nothing above the names of the rows."""
    return not rows[at][0] and _numbers(rows[at]) > 1 and bool(rows[at + 1][0])


def _alike(row: Sequence[str], other: Sequence[str]) -> bool:
    """Whether both have numbers in the same columns, and names that differ by a number only: 1-GPU and 2-GPU."""
    kinds = [[is_number(text) for text in each] for each in (row, other)]
    names = ["".join(letter for letter in each[0] if not letter.isdigit()) for each in (row, other)]
    return any(kinds[0]) and kinds[0] == kinds[1] and names[0] == names[1] and names[0] != row[0]


def spread_groups(heading: list[list[str]]) -> list[list[str]]:
    """A heading whose outer names stand over all columns of their group, where only the first was named."""
    for upper, lower in pairwise(heading):
        for at in range(1, len(upper)):
            if not upper[at] and lower[at] and upper[at - 1] and (at > 1 or lower[0]):
                upper[at] = upper[at - 1]
    return heading


def _words(row: Sequence[str]) -> int:
    return sum(map(is_word, row))


def _numbers(row: Sequence[str]) -> int:
    return sum(map(is_number, row))


def is_heading(texts: Sequence[str]) -> bool:
    """Whether a row has more names than numbers, or nothing above the names of the rows."""
    return _words(texts) > _numbers(texts[1:]) or not texts[0] or not _numbers(texts)
