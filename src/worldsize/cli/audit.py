"""`worldsize audit`: whether the scaling tables of a page, a paper or a run hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes
from worldsize.cli.panels import OUTPUT, TABLES

if TYPE_CHECKING:
    from worldsize.analysis.audit.answer import Audit

DOES_NOT_HOLD = 3
"""Exit status of --strict, as that of a gate."""
PRINTED = Path("-")
File = Annotated[str, o.argument("A file that holds tables, - for standard input, or a run folder.")]
Strict = Annotated[bool, o.flag("Exit with status 3 if a number is wrong, suspect or unexplained.", OUTPUT, "--strict")]
Page = Annotated[
    Path | None, o.flag("Write the findings to this file as a page.", OUTPUT, metavar="FILE.html", default="no file")
]
Markdown = Annotated[
    Path | None,
    o.flag("Write the findings to this file as Markdown; - prints them.", OUTPUT, metavar="FILE", default="no file"),
]


@takes("AuditSettings", panel=TABLES, first="column samples model")
def audit(
    flags: Flags,
    file: File,
    strict: Strict = False,
    out: Page = None,
    markdown: Markdown = None,
    as_json: o.Json = False,
) -> None:
    """Check published scaling tables for consistency.

    Recomputes each number from the others, to the printed precision. Reads Markdown, HTML, CSV, LaTeX, JSON and text.
    Flags supply what the tables leave out; so does a TOML file beside them, README.audit.toml for README.md, whose keys
    are the flags (docs/audit.md).
    """
    from worldsize.config import audit_settings
    from worldsize.errors import UsageError
    from worldsize.report.audit_source import audited

    if as_json and markdown == PRINTED:
        raise UsageError("--json and --markdown - both print: give --markdown a file")
    settings = audit_settings(file, flags.of("AuditSettings"))
    found = audited(file, settings, _typed() if file == "-" else None)
    _show(found, out, markdown, as_json=as_json)
    if strict and not found.holds:
        raise typer.Exit(DOES_NOT_HOLD)


def _show(found: "Audit", out: Path | None, markdown: Path | None, *, as_json: bool) -> None:
    if out is not None:
        from worldsize.cli.output import written_by
        from worldsize.report.audit_page import write_audit_page

        with written_by("--out"):
            write_audit_page(found, out)
    if markdown is not None:
        _give_markdown(found, markdown)
    if as_json:
        from worldsize.cli.audit_json import content
        from worldsize.cli.output import print_json

        print_json(content(found, out))
    elif markdown != PRINTED:
        from worldsize.cli.audit_display import print_audit

        print_audit(found)
        if out is not None:
            print(f"\npage: {out}")


def _give_markdown(found: "Audit", file: Path) -> None:
    from worldsize.report.audit_text import audit_markdown

    text = audit_markdown(found)
    if file == PRINTED:
        print(text.rstrip("\n"))
        return
    from worldsize.cli.output import written_by
    from worldsize.results.files import write_whole

    with written_by("--markdown"):
        write_whole(file, text)


def _typed() -> str:
    """The text of standard input. Raises UsageError where it is closed."""
    import codecs
    import sys

    from worldsize.documents.read import MAX_BYTES
    from worldsize.errors import UsageError

    if sys.stdin is None:
        raise UsageError("standard input is closed\nGive a file that holds a table.")
    if sys.stdin.isatty():
        print("Paste the text, then press Ctrl-D on a line of its own.", file=sys.stderr)
    data = sys.stdin.buffer.read(MAX_BYTES + 1)
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")
