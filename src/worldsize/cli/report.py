"""`worldsize report`: make the report of a run folder again."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o


def report(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    as_json: o.Json = False,
) -> None:
    """Write the report of a run folder (page, tables, charts) and print its results."""
    from worldsize.cli.display import print_json, print_results
    from worldsize.report.write import write_report

    page = write_report(run)
    if as_json:
        print_json(run, page)
    else:
        print_results(run, page)
