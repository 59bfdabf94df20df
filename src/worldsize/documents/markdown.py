"""Tables of Markdown: its own, those in raw HTML, and those printed in code blocks."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from worldsize.documents import logs, text
from worldsize.documents.grid import Blocks, Cell
from worldsize.documents.guess import READERS, guess
from worldsize.documents.tex import plain

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_LONGEST = 5_000
"""Characters of a paragraph whose marks are taken off; what is longer is no text that people wrote."""
_MARKS = re.compile(r"[*_`\[\]<>&\\$!]")
_MATH = re.compile(r"\$\$?([^$\n]+)\$\$?")
_IS_MATH = re.compile(r"\\|\^|^[+\-−]?[\d.,]+%?$")
_TAG = re.compile(r"</?([a-zA-Z]+)")
_NAMES = {"csv": "csv", "tsv": "csv", "json": "json", "tex": "latex", "latex": "latex", "html": "html"}
"""Names of languages after a fence, with the format of what stands in it."""


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add what a Markdown text holds to the blocks; `line` is where it begins in its file.

    Raises UsageError for too many entries.
    """
    from markdown_it import MarkdownIt

    # Marks within lines are read for cells and paragraphs alone, and only where there are any: a fifth of the time.
    parser = MarkdownIt("commonmark").enable("table").disable(["inline", "text_join"])
    environment: dict[str, Any] = {}
    walk = _Walk(source.split("\n"), parser, environment, blocks, line)
    walk.over(iter(parser.parse(source, environment)))


class _Walk:
    """Goes through the blocks of a text."""

    def __init__(
        self, lines: Sequence[str], parser: "MarkdownIt", environment: dict[str, Any], blocks: Blocks, first: int
    ) -> None:
        self._lines, self._parser, self._environment, self._blocks, self._first = (
            lines,
            parser,
            environment,
            blocks,
            first,
        )

    def over(self, tokens: Iterator["Token"]) -> None:
        """Add all that the tokens hold."""
        read_up_to = level = 0
        for token in tokens:
            if token.map and token.map[0] < read_up_to:
                continue
            if token.type in ("heading_open", "heading_close"):
                level = int(token.tag[1]) if token.nesting > 0 else 0
            elif token.type == "table_open":
                self._table(_until("table_close", tokens, token.level), self._line(token))
            elif token.type == "html_block":
                read_up_to = self._raw(token)
            elif token.type in ("bullet_list_open", "ordered_list_open"):
                items = list(_until(token.type.replace("open", "close"), tokens, token.level))
                if not self._list(items, self._line(token)):
                    self.over(iter(items))
            elif token.type in ("fence", "code_block"):
                self._code(token)
            elif token.type == "inline":
                self._paragraph(token, level)

    def _line(self, token: "Token") -> int:
        return self._first + token.map[0] if self._first and token.map else 0

    def _table(self, tokens: Iterable["Token"], line: int) -> None:
        rows: list[list[Cell]] = []
        after = []
        for token in tokens:
            if token.type == "tr_open":
                printed = self._lines[token.map[0]] if token.map else "|"
                after.append("|" not in printed)
                rows.append([])
                barred = printed.lstrip().startswith("|")
                # GitHub takes a blank before the first bar for nothing, where the heading has no bar before it.
                if len(rows) == 1:
                    is_open = not barred
                elif is_open and barred and printed[0].isspace():
                    rows[-1].append(Cell(""))
            elif token.type == "inline":
                rows[-1].append(self._words(token.content))
        # A line right below a table is a row of it, says GitHub; who wrote it there without a bar meant a paragraph.
        count = next((at for at, is_after in enumerate(after) if at and is_after), len(rows))
        if not self._blocks.table(rows[:count], line, 1, more=True):
            count = 0
        for row in rows[count:]:
            self._blocks.words(" ".join(cell.text for cell in row))

    def _raw(self, token: "Token") -> int:
        """Read a block of HTML, with the blank lines in its tables; returns the first line after it."""
        start, end = token.map or (0, 0)
        content = token.content
        if "<table" in content.lower():
            is_open = _open_tables(content)
            while is_open > 0 and end < len(self._lines):
                is_open += _open_tables(self._lines[end])
                end += 1
            content = "\n".join(self._lines[start:end])
        if not content.lstrip().startswith("<!--"):
            READERS["html"](content, self._blocks, self._line(token))
        return end

    def _code(self, token: "Token") -> None:
        line = self._line(token) + (token.type == "fence") if self._first else 0
        name = token.info.strip().lower().partition(" ")[0].strip("{}.=")
        format_ = _NAMES.get(name) or guess(token.content)
        try:
            READERS.get(format_, text.read)(token.content, self._blocks, line)
        except ValueError:  # called json, and is not
            self._blocks.words(token.content)

    def _list(self, items: Sequence["Token"], line: int) -> bool:
        """Read the items of a list as the lines of a log, and return whether they were that."""
        if any(token.type in ("fence", "code_block", "table_open", "html_block") for token in items):
            return False
        lines = [self._words(token.content).text for token in items if token.type == "inline"]
        return len(lines) > 1 and logs.read(lines, self._blocks, line)

    def _paragraph(self, token: "Token", level: int) -> None:
        """A paragraph, in which a table may stand that no bar marks as one, or a heading of some level."""
        content = token.content
        format_ = guess(content) if "\\begin" in content else "text"
        if format_ == "latex" or "\n" in content:
            found = Blocks()
            READERS[format_](content, found, self._line(token))
            if found.has_table:
                self._blocks.add(found)
                return
        self._blocks.words(self._words(content).text, level)

    def _words(self, content: str) -> Cell:
        """Text without the marks in it, and whether all of it is bold."""
        if not _MARKS.search(content) or len(content) > _LONGEST:
            return Cell(content)
        content = _MATH.sub(lambda math: plain(math[1]).text if _IS_MATH.search(math[1]) else math[0], content)
        tokens: list[Token] = []
        self._parser.inline.parse(content, self._parser, self._environment, tokens)
        pieces: list[tuple[str, bool]] = []
        bold, raised = 0, False
        for token in tokens:
            if token.type in ("strong_open", "strong_close"):
                bold += token.nesting
            elif token.type == "html_inline":
                tag, step = _TAG.match(token.content), -1 if token.content.startswith("</") else 1
                name = tag[1].lower() if tag else ""
                bold += step if name in ("b", "strong") else 0
                raised = step > 0 if name == "sup" else raised
                pieces += [(" ", False)] if name == "br" else []
            else:
                piece = " " if token.type in ("softbreak", "hardbreak") else token.content
                pieces.append((f"^{piece}" if raised and piece else piece, bold > 0))
        shown = [is_bold for piece, is_bold in pieces if piece.strip()]
        return Cell("".join(piece for piece, _ in pieces), bool(shown) and all(shown))


def _until(end: str, tokens: Iterator["Token"], level: int) -> Iterator["Token"]:
    for token in tokens:
        if token.type == end and token.level == level:
            return
        yield token


def _open_tables(text_: str) -> int:
    return text_.lower().count("<table") - text_.lower().count("</table")
