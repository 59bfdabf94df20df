"""Reads a file of any known format into paragraphs and tables."""

import codecs
import re
from pathlib import Path

from worldsize.documents import markdown
from worldsize.documents.decimals import with_points
from worldsize.documents.document import FORMATS, Document, Table
from worldsize.documents.grid import Blocks
from worldsize.documents.guess import READERS, guess
from worldsize.errors import UsageError

MAX_BYTES = 5_000_000
MAX_LINES = 20_000
"""Lines of Markdown, LaTeX or plain text; a table takes one for each of its rows."""
MAX_LENGTH = 100_000
"""Characters of such a line."""
SUFFIXES = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".rmd", ".qmd"), "markdown"),
    **dict.fromkeys((".html", ".htm", ".xhtml"), "html"),
    **dict.fromkeys((".csv", ".tsv", ".psv"), "csv"),
    **dict.fromkeys((".tex", ".ltx", ".latex"), "latex"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
}
"""Formats that a file's name tells; `.txt` tells nothing."""
UNDERSTOOD = (
    "Tables are understood in Markdown, HTML, CSV or TSV, LaTeX, JSON, and text whose columns stand below each other."
)
_READERS = {**READERS, "markdown": markdown.read}
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_OTHERS = {
    b"%PDF": "a PDF file: copy the words of its table into a text file",
    b"PK\x03\x04": "a zipped file: save a spreadsheet as CSV, a document as HTML or text",
    b"\x89PNG": "a picture: type its table into a text file",
    b"\xff\xd8\xff": "a picture: type its table into a text file",
}
_CONTROL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]"
)
_PLAINER = {"markdown": "text", "csv": "text", "latex": "text"}
"""What a text may be too, that names itself otherwise."""


def read(path: str, *, text: str | None = None, format: str | None = None) -> Document:
    """The paragraphs and tables of a file; those of `text` where it is given, as with `-` for standard input.

    `format` is one of FORMATS; without it the suffix tells it, else what is in the text. Raises UsageError for what
    is no file, no text, too large, damaged JSON or an unknown format, and for a text without a table.
    """
    if format is not None and format not in FORMATS:
        raise UsageError(f"unknown format {format!r}; known: {', '.join(FORMATS)}")
    name = "standard input" if path == "-" else path
    source = _CONTROL.sub(_shown, _lines(_source(path, name) if text is None else _checked(text, name)))
    first = format or SUFFIXES.get(Path(path).suffix.lower()) or guess(source)
    _check_lines(source, first, name)
    blocks = Blocks()
    try:
        _READERS[first](source, blocks, 1)
        if not blocks.has_table and format is None and first in _PLAINER:
            first, blocks = _PLAINER[first], Blocks()
            _READERS[first](source, blocks, 1)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    except ValueError as error:
        raise UsageError(f"{name} is no valid JSON: {error}\nGive the file as its tool wrote it.") from None
    if not blocks.has_table:
        raise UsageError(f"no table was found in {name}\n{UNDERSTOOD}")
    return Document(path, first, tuple(with_points(each) if isinstance(each, Table) else each for each in blocks.found))


def _source(path: str, name: str) -> str:
    """The text of a file."""
    if path == "-":
        raise UsageError("standard input was not read\nGive a file, or - with the text on standard input.")
    file = Path(path)
    try:
        if file.is_dir():
            raise UsageError(f"{name} is a folder\nGive a file that holds a table.")
        if file.exists() and file.stat().st_size > MAX_BYTES:
            raise _too_large(name, file.stat().st_size)
        with file.open("rb") as stream:  # what is no ordinary file may have no end
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise UsageError(f"there is no file {name}\nGive a file that holds a table, or - for standard input.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{name} cannot be read: {reason}\nGive a file that holds a table.") from None
    if len(data) > MAX_BYTES:
        raise _too_large(name, len(data))
    return _decoded(data, name)


def _checked(text: str, name: str) -> str:
    if len(text) > MAX_BYTES:
        raise _too_large(name, len(text))
    if "\0" in text:
        raise _no_text(name)
    return text.removeprefix("\ufeff")


def _decoded(data: bytes, name: str) -> str:
    for start, what in _OTHERS.items():
        if data.startswith(start):
            raise UsageError(f"{name} is {what}, or give - and paste it.")
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace").replace("\0", "")
    if b"\0" in data:
        raise _no_text(name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _shown(found: re.Match[str]) -> str:
    """What a terminal shows for its commands: nothing; for other marks a blank."""
    return "" if found[0][0] == "\x1b" and len(found[0]) > 1 else " "


def _check_lines(source: str, format_: str, name: str) -> None:
    """Raise UsageError for lines that would take long to read, and are no table that people publish."""
    if format_ not in ("markdown", "latex", "text"):
        return
    if source.count("\n") > MAX_LINES:
        what = f"more than {MAX_LINES:,} lines of {format_}"
    elif any(len(line) > MAX_LENGTH for line in source.split("\n")):
        what = f"a line of more than {MAX_LENGTH:,} characters"
    else:
        return
    raise UsageError(f"{name} has {what}\nGive a file with only the tables to check.")


def _too_large(name: str, size: int) -> UsageError:
    return UsageError(
        f"{name} has {size / 1e6:.1f} MB; up to {MAX_BYTES / 1e6:.0f} MB are read\n"
        "Give a file with only the tables to check."
    )


def _no_text(name: str) -> UsageError:
    return UsageError(f"{name} is no text\n{UNDERSTOOD}")
