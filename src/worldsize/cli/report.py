"""`worldsize report`: make the report of a run folder again."""

from pathlib import Path
from typing import Annotated

from worldsize.cli import options as o
from worldsize.cli.panels import OUTPUT

Open = Annotated[bool, o.flag("Open the page in the browser.", OUTPUT, "--open")]


def report(run: o.Run, open_page: Open = False, as_json: o.Json = False) -> None:
    """Write the report of a run folder again, and print its results.

    Writes a page, tables, charts and samples to RUN/report. Ends with status 4 if something cannot be read.
    """
    from worldsize.cli.results import exit_for_damage, report_and_print

    shown = report_and_print(run, as_json=as_json)
    if open_page:
        show_in_browser(shown.page)
    exit_for_damage(damaged=shown.damaged)


def show_in_browser(page: Path) -> None:
    """Open a page in the browser of $BROWSER or of the desktop; where there is none, say so: that is no failure."""
    import sys
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        print(f"no browser could be opened here; the page is {page}", file=sys.stderr)
