"""Tables of LaTeX: tabular and its kin, with the words around them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from worldsize.documents.grid import MAX_CELLS, MAX_HEADING, MAX_SPAN, Blocks, Cell, is_heading, too_many
from worldsize.documents.numbers import tidy
from worldsize.documents.tex import argument, plain, skip_options

_WIDE = ("tabular*", "tabularx", "tabulary", "xltabular")
"""Those that say their width before their columns."""
_KIN = (*_WIDE, "tabular", "longtable", "longtabu", "tabu", "array", "supertabular", "NiceTabular", "tblr", "longtblr")
_NAMES = "|".join(re.escape(name) for name in _KIN)
_BEGIN = re.compile(rf"\\begin[ \t]*\{{(?:{_NAMES})\}}")
_MARK = re.compile(
    rf"\\(?P<edge>begin|end)[ \t]*\{{(?:(?P<tabular>{_NAMES})|(?P<float>(?:side|wrap|sub)?(?:table|float)\*?))\}}"
    r"|\\(?P<caption>caption(?:of)?)\*?(?![a-zA-Z])"
)
_LONGEST = 2_000
"""Characters of a caption, and of what a table says of its columns."""
_COMMENT = re.compile(r"(\\.)|%[^\n]*", re.DOTALL)
_MACRO = re.compile(r"\\(?:(?:re|provide)?newcommand\*?[ \t]*\{?|def)[ \t]*\\([a-zA-Z]+)\}?[ \t]*(?=\{)")
_TITLE = re.compile(r"\\((?:sub)*section|(?:sub)?paragraph|chapter|title)\*?[ \t]*\{([^{}]*)\}")
_LEVELS = ("chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_PART = re.compile(
    r"(?P<row>\\\\\*?(?:[ \t]*\[[^\[\]\n]*\])?|\\(?:tabularnewline|cr)(?![a-zA-Z]))"
    r"|(?P<open>\\begin[ \t]*\{[^{}]*\}|\{)|(?P<close>\\end[ \t]*\{[^{}]*\}|\})|\\.|(?P<cell>&)",
    re.DOTALL,
)
_RULE = re.compile(
    r"\s*\\(?:(?P<bare>hline|hdashline|endfirsthead|endhead|endfoot|endlastfoot|morecmidrules|centering)(?![a-zA-Z])"
    r"|(?P<book>toprule|midrule|bottomrule|addlinespace)(?![a-zA-Z])(?:[ \t]*\[[^\[\]]*\])?"
    r"|(?P<other>cmidrule|cline|cdashline|specialrule|Xhline|noalign|rowcolor|arrayrulecolor|SetRow|label)"
    r"(?![a-zA-Z])(?:[ \t]*(?:\[[^\[\]]*\]|\([^()]*\)|\{[^{}]*\}))*)"
)
_COLUMNS = re.compile(r"\\multicolumn\s*\{\s*(\d{1,4})\s*\}")
_ROWS = re.compile(r"\\multirow(?:cell)?\s*(?:\[[^\[\]]*\])?\s*\{\s*(-?\d{1,4})\s*\}")


class _Row(NamedTuple):
    rules: tuple[str, ...]
    """What stands between it and the row above."""
    cells: tuple[str, ...]


class _Found(NamedTuple):
    """A tabular, or a caption that belongs to one."""

    start: int
    end: int
    body: int
    """Where the rows of a tabular begin; 0 for a caption."""
    caption: str


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add what a LaTeX text holds to the blocks; `line` is where it begins in its file.

    Raises UsageError for too many entries.
    """
    source = _COMMENT.sub(lambda found: found[1] or "", source)
    macros = dict(_macros(source))
    at = max(source.find("\\begin{document}"), 0)
    counted = 0
    for found in _Finder(source).found():
        if found.start < at:
            continue
        _words(source[at : found.start], macros, blocks)
        if line:
            line += source.count("\n", counted, found.start)
            counted = found.start
        at = found.end
        if found.body:
            _table(source[found.body : found.end], found.caption, macros, blocks, line)
    _words(source[at:], macros, blocks)


def has_tabular(source: str) -> bool:
    """Whether a text holds a table of LaTeX."""
    return _BEGIN.search(source) is not None


def _macros(source: str) -> Iterator[tuple[str, str]]:
    """Commands of the author that take no argument, with what they stand for."""
    for found in _MACRO.finditer(source):
        body, _ = argument(source[found.end() : found.end() + 300], 0)
        yield found[1], body


class _Float:
    """A floating table, or the whole text, with what is in it so far."""

    def __init__(self) -> None:
        self.captions: list[tuple[int, int, str]] = []
        self.tabulars: list[_Found] = []

    def matched(self, outer: "_Float") -> list[_Found]:
        """The tabulars with their captions; without one, they are the outer one's matter."""
        if not self.captions:
            outer.tabulars.extend(self.tabulars)
            return []
        if not self.tabulars:
            return []
        one_each = len(self.captions) == len(self.tabulars)
        tabulars = [
            found._replace(caption=found.caption or self.captions[place if one_each else 0][2])
            for place, found in enumerate(self.tabulars)
        ]
        return tabulars + [_Found(start, end, 0, "") for start, end, _ in self.captions]


class _Finder:
    """Goes through the marks of a source, and keeps the tabulars and the captions that belong to them."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._floats = [_Float()]
        self._found: list[_Found] = []
        self._tabular: _Found | None = None
        self._depth = 0
        self._read = 0

    def found(self) -> list[_Found]:
        """All of them, in their order."""
        for mark in _MARK.finditer(self._source):
            if mark.start() < self._read:
                continue
            if mark["caption"]:
                self._caption(mark)
            elif mark["tabular"]:
                self._edge(mark)
            else:
                self._close(mark.start())  # if the end of a tabular is missing
                self._float(mark["edge"] == "begin")
        self._close(len(self._source))
        while len(self._floats) > 1:
            self._float(begins=False)
        return sorted(self._found + self._floats[0].tabulars)

    def _caption(self, mark: re.Match[str]) -> None:
        words, end = _caption(self._source, mark)
        self._read = end
        if self._tabular:
            self._tabular = self._tabular._replace(caption=self._tabular.caption or words)
        else:
            self._floats[-1].captions.append((mark.start(), end, words))

    def _edge(self, mark: re.Match[str]) -> None:
        self._depth += 1 if mark["edge"] == "begin" else -1
        if self._tabular is None:
            self._depth = max(self._depth, 0)
            if self._depth:
                self._read = _body(self._source, mark)
                self._tabular = _Found(mark.start(), 0, self._read, "")
        elif not self._depth:
            self._close(mark.end())

    def _close(self, end: int) -> None:
        if self._tabular:
            self._floats[-1].tabulars.append(self._tabular._replace(end=end))
        self._tabular, self._depth = None, 0

    def _float(self, begins: bool) -> None:
        if begins:
            self._floats.append(_Float())
        elif len(self._floats) > 1:
            inner = self._floats.pop()
            self._found += inner.matched(self._floats[-1])


def _caption(source: str, mark: re.Match[str]) -> tuple[str, int]:
    at = mark.end()
    if mark["caption"] == "captionof":
        _, at = argument(source, at, _LONGEST)
    return argument(source, skip_options(source, at), _LONGEST)


def _body(source: str, mark: re.Match[str]) -> int:
    at = skip_options(source, mark.end())
    for _ in range(2 if mark["tabular"] in _WIDE else 1):
        _, at = argument(source, at, _LONGEST)
        at = skip_options(source, at)
    return at


def _words(source: str, macros: Mapping[str, str], blocks: Blocks) -> None:
    source = source.removeprefix("\\begin{document}")
    if not source.strip():
        return
    kind, *rest = "", *_TITLE.split(source)
    while True:
        for words in re.split(r"\n\s*\n", plain(rest.pop(0), macros).text):
            blocks.words(words)
        if not rest:
            return
        kind = rest.pop(0)
        blocks.words(plain(rest.pop(0), macros).text, 1 + _LEVELS.index(kind) if kind in _LEVELS else 1)


def _table(source: str, caption: str, macros: Mapping[str, str], blocks: Blocks, line: int) -> None:
    rows = _without_repeats([row for row in _rows(source) if row.rules or any(map(str.strip, row.cells))])
    grid = _grid(rows, macros, line)
    words = plain(caption, macros).text
    if not blocks.table(grid, line, _head(rows, grid), words):
        blocks.words(words)
        for row in grid:
            blocks.words(" ".join(cell.text for cell in row))


def _rows(source: str) -> Iterator[_Row]:
    """Rows as they were written, without the rules between them."""
    cells: list[str] = []
    at, depth = 0, 0
    for part in _PART.finditer(source):
        if part["open"]:
            depth += 1
        elif part["close"]:
            depth = max(depth - 1, 0)
        elif depth == 0 and (part["cell"] or part["row"]):
            cells.append(source[at : part.start()])
            at = part.end()
            if part["row"]:
                yield _ruled(cells)
                cells = []
    cells.append(re.sub(r"\\end[ \t]*\{[^{}]*\}\s*$", "", source[at:]))
    yield _ruled(cells)


def _ruled(cells: Sequence[str]) -> _Row:
    rules: list[str] = []
    first = cells[0]
    while True:
        caption = re.match(r"\s*\\caption\*?(?![a-zA-Z])", first)
        if caption:
            _, end = argument(first, skip_options(first, caption.end()))
            first = first[end:]
            continue
        rule = _RULE.match(first)
        if rule is None:
            return _Row(tuple(rules), (first, *cells[1:]))
        rules.append(rule["bare"] or rule["book"] or rule["other"])
        first = first[rule.end() :]


def _without_repeats(rows: Sequence[_Row]) -> list[_Row]:
    """Rows of a longtable without the heading and the foot of its further pages; the heading ends in a rule."""
    ends = {rule: at for at, row in enumerate(rows) for rule in row.rules if rule.startswith("end")}
    if not ends:
        return [row for row in rows if any(map(str.strip, row.cells))]
    head = min(ends.get("endfirsthead", len(rows)), ends.get("endhead", len(rows)))
    first = max(ends.values())
    body = rows[first:]
    if body and head < len(rows):
        body = [body[0]._replace(rules=("midrule",)), *body[1:]]
    return [row for row in [*rows[:head], *body] if any(map(str.strip, row.cells))]


def _grid(rows: Sequence[_Row], macros: Mapping[str, str], line: int) -> list[list[Cell]]:
    """Cells in each place they span; the places below a multirow are written, and empty."""
    grid: list[list[Cell]] = []
    tall: list[tuple[int, int, int]] = []
    count = 0
    for row in rows:
        wide: list[Cell] = []
        for source in row.cells:
            columns, down = _COLUMNS.search(source), _ROWS.search(source)
            if down:
                tall.append((len(grid), len(wide), max(-MAX_SPAN, min(int(down[1]), MAX_SPAN))))
            words = plain(source, macros)
            wide += [Cell(tidy(words.text), words.bold)] * max(1, min(int(columns[1]) if columns else 1, MAX_SPAN))
            if count + len(wide) > MAX_CELLS:
                raise too_many(line)
        count += len(wide)
        grid.append(wide)
    for y, x, rows_down in tall:
        for other in range(y + 1, y + rows_down) if rows_down > 0 else range(y - 1, y + rows_down, -1):
            if not 0 <= other < len(grid) or x >= len(grid[other]) or grid[other][x].text:
                break
            grid[other][x] = grid[y][x]
    return grid


def _head(rows: Sequence[_Row], grid: Sequence[Sequence[Cell]]) -> int | None:
    """Rows above the first rule that parts rows, as far as they are names; None where no rule tells."""
    for name in ("midrule", "hline", "Xhline", "hdashline"):
        for at, row in enumerate(rows[: MAX_HEADING + 1]):
            if at and name in row.rules:
                return at if all(is_heading([cell.text for cell in each]) for each in grid[:at]) else None
    return None
