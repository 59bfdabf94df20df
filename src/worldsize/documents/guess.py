"""The format of a text by what is in it, and the readers of all formats that may stand inside another one."""

import json
import re
from collections.abc import Callable
from itertools import pairwise

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
_UNDER_NAMES = re.compile(r":?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*")
"""The line that makes the one above it the heading of a table of Markdown."""
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
    if _FENCE.search(source) or _has_bars(source):
        return "markdown"
    return "csv" if not _aligned(source) and delimited.delimiter_of(source) else "text"


def _aligned(source: str) -> bool:
    """Whether its rows are set with blanks, and commas stand within numbers or words only: "4   256   4,063   1,9"."""
    rows = [line for line in source.split("\n", 500)[:500] if len(re.findall(r"\S {2,}(?=\S)", line.strip())) >= 2]
    apart = [line for line in rows if re.search(r",(?!\d)\S|(?<!\d),\S|,(?!\d{3},)\d+,|[;\t]", line)]
    return len(rows) >= 2 and not apart


def _has_bars(source: str) -> bool:
    """Whether a line of strokes stands below one with bars between names."""
    for above, line in pairwise(source.split("\n")):
        if "|" in above and "-" in line and not line.strip(" >\t|:-") and _UNDER_NAMES.fullmatch(line.strip(" >\t|")):
            return True
    return False


def _is_json(source: str) -> bool:
    try:
        json.loads(source, parse_int=str)
    except (ValueError, RecursionError):
        return tools.is_lines(source)
    return True
