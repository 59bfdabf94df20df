"""The format of a text by what is in it, and the readers of all formats that may stand inside another one."""

import json
import re
from collections.abc import Callable

from worldsize.documents import delimited, html, latex, text, tools
from worldsize.documents.grid import Blocks
from worldsize.documents.nccl import is_output

READERS: dict[str, Callable[[str, Blocks, int], None]] = {
    "html": html.read,
    "csv": delimited.read,
    "latex": latex.read,
    "text": text.read,
    "json": tools.read,
}
"""Add what a text holds to the blocks; the number is the line at which it begins in its file."""

_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_PIPES = re.compile(r"\|[^\n]*\n[ >]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*(?:\n|$)")
_PAGE = re.compile(
    r"<(?:!doctype|html|head|body|table|div|p|h[1-6]|section|article|figure|center|\?xml)\b", re.IGNORECASE
)
_HEADING = re.compile(r"^#{1,6} +\S", re.MULTILINE)


def guess(source: str) -> str:
    """The format of a text, one of FORMATS; `text` where nothing speaks for another."""
    start = source.lstrip()[:200]
    table_of_html = "<table" in source.lower()
    if is_output(source):
        return "text"
    if start[:1] in ("{", "[") and _is_json(source):
        return "json"
    if _FENCE.search(source) is None and latex.has_tabular(source):
        return "latex"
    if table_of_html:
        return "html" if _PAGE.match(start) and not _HEADING.search(source) else "markdown"
    if _FENCE.search(source) or _PIPES.search(source):
        return "markdown"
    return "csv" if delimited.delimiter_of(source) else "text"


def _is_json(source: str) -> bool:
    try:
        json.loads(source, parse_int=str)
    except (ValueError, RecursionError):
        return tools.is_lines(source)
    return True
