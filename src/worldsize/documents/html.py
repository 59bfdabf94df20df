"""Tables of HTML: also of pages that leave out end tags, as HTML may."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from worldsize.documents import text as plain
from worldsize.documents.grid import MAX_SPAN, Blocks, Cell

_DROPPED = frozenset(("script", "style", "template", "noscript", "annotation", "annotation-xml", "svg", "select"))
"""Elements whose words are not of the page; `annotation` says a formula a second time."""
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_PARAGRAPHS = frozenset(
    (
        *("p", "div", "section", "article", "header", "footer", "main", "aside", "nav", "figure", "figcaption"),
        *(*_HEADINGS, "title", "li", "ul", "ol", "dl", "dt", "dd", "blockquote", "hr"),
        *("table", "caption", "thead", "tbody", "tfoot", "tr", "td", "th", "pre", "form", "summary", "details"),
    )
)
"""Elements at whose ends a paragraph ends."""
_END = re.compile(r"</(?:html|body)[ \t]*>", re.IGNORECASE)
"""Where the parser stops, though a browser shows what follows."""
_BOLD = frozenset(("b", "strong"))


def read(source: str, blocks: Blocks, line: int = 1) -> None:
    """Add what an HTML text holds to the blocks; `line` is where it begins in its file.

    Raises UsageError for too many entries.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, recover=True, no_network=True)
    try:
        root = etree.fromstring(_END.sub("", source).encode("utf-8", "replace"), parser)
    except (etree.ParseError, ValueError):  # nothing in it
        return
    words: list[str] = []
    for item in _items(root) if root is not None else ():
        if isinstance(item, str):
            words.append(item)
            continue
        blocks.words("".join(words))
        words.clear()
        if item is not None and item.tag in _HEADINGS:
            blocks.words(_join(_pieces(item)), int(item.tag[1]))
        elif item is not None and item.tag == "pre":
            plain.read("".join(item.itertext()), blocks, _line(item, line))
        elif item is not None:
            _table(item, blocks, _line(item, line))
    blocks.words("".join(words))


def _line(element: Any, first: int) -> int:
    return first + element.sourceline - 1 if first and element.sourceline else 0


def _items(root: Any) -> Iterator[Any]:
    """Text, None where a paragraph ends, tables, headings and texts with their line breaks, in their order.

    Not by recursion: a damaged page may be hundreds of elements deep.
    """
    waiting: list[Any] = [root]
    while waiting:
        item = waiting.pop()
        if item is None or isinstance(item, str):
            yield item
            continue
        if item.tail and item is not root:
            waiting.append(item.tail)
        if not isinstance(item.tag, str) or item.tag in _DROPPED:
            continue
        ends = item.tag in _PARAGRAPHS
        if (
            (item.tag == "table" and item.find(".//table") is None)
            or item.tag == "pre"
            or (item.tag in _HEADINGS and item.find(".//table") is None)
        ):
            yield item
        elif item.tag == "br":
            yield " "
        elif item.tag == "sup" and not len(item):
            yield _raised(item.text)
        else:
            waiting.extend((None,) * ends)
            waiting.extend(reversed(item))
            waiting.extend((item.text,) if item.text else ())
            waiting.extend((None,) * ends)


class _Piece(NamedTuple):
    text: str
    bold: bool


def _table(table: Any, blocks: Blocks, line: int) -> None:
    """A table that holds no other one; one that does is there for the layout of its page."""
    caption = table.find(".//caption")
    has_head = table.find(".//thead//tr") is not None
    rows, head, in_head = [], 0, True
    for row in table.iter("tr"):
        cells = [cell for cell in row if cell.tag in ("td", "th")]
        in_head = in_head and (row.getparent().tag == "thead" if has_head else _names_only(cells))
        head += in_head
        rows.append([_cell(cell) for cell in cells])
    words = "" if caption is None else _join(_pieces(caption))
    if not blocks.table(rows, line, head or None, words):
        for row in rows:
            blocks.words(" ".join(cell.text for cell in row))


def _names_only(cells: list[Any]) -> bool:
    """Whether all cells of a row are heading cells; an empty corner is often no heading cell."""
    return any(cell.tag == "th" for cell in cells) and all(
        cell.tag == "th" or not (len(cell) or (cell.text or "").strip()) for cell in cells
    )


def _cell(cell: Any) -> Cell:
    pieces = _pieces(cell)
    shown = [piece.bold for piece in pieces if piece.text.strip()]
    return Cell(
        _join(pieces),
        bool(shown) and all(shown) and cell.tag == "td",
        _span(cell, "colspan"),
        _span(cell, "rowspan"),
    )


def _span(cell: Any, name: str) -> int:
    given = (cell.get(name) or "").strip()
    if not (given.isascii() and given.isdecimal()) or len(given) > 9:
        return 1
    return (int(given) if name == "colspan" else int(given) or MAX_SPAN) or 1  # rowspan=0: all rows below


def _join(pieces: list[_Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def _pieces(root: Any) -> list[_Piece]:
    """The words of a cell, and which are bold; raised ones begin with `^`, as footnote marks and powers do."""
    found: list[_Piece] = []
    waiting: list[tuple[Any, bool, bool]] = [(root, _is_bold(root), False)]
    while waiting:
        item, bold, raised = waiting.pop()
        if isinstance(item, str):
            found.append(_Piece(_raised(item) if raised else item, bold))
            continue
        for child in reversed(item):
            waiting.extend(((child.tail, bold, raised),) if child.tail else ())
            if not isinstance(child.tag, str) or child.tag in _DROPPED or _is_hidden(child):
                continue
            if child.tag in ("br", *_PARAGRAPHS):
                waiting.append((" ", bold, False))
            waiting.append((child, bold or _is_bold(child), raised or child.tag == "sup"))
        if item.text:
            waiting.append((item.text, bold, raised))
    return found


def _raised(text: str | None) -> str:
    return f"^{text.strip()}" if text and text.strip() else ""


def _is_bold(element: Any) -> bool:
    style = (element.get("style") or "").replace(" ", "").lower()
    looks = element.get("class") or ""
    return element.tag in _BOLD or "font-weight:bold" in style or "font-weight:700" in style or "ltx_font_bold" in looks


def _is_hidden(element: Any) -> bool:
    """Whether a part of a cell is not shown: a key to sort by, or a formula for other programs."""
    return "display:none" in (element.get("style") or "").replace(" ", "") or "katex-html" in (
        element.get("class") or ""
    )
