"""`worldsize compare`: two runs, or a run and a stored baseline; the gate of continuous integration."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o


def compare(
    ctx: typer.Context,
    a: Annotated[Path, typer.Argument(help="The earlier run: a run folder, or a stored baseline.")],
    b: Annotated[Path | None, typer.Argument(help="The run that is compared with it, likewise.")] = None,
    fail_above: Annotated[
        str | None, typer.Option(help="Exit with 3 if a cell is slower by more than this, such as 5%, with certainty.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 also on what is not certain, or cannot be judged.")
    ] = False,
    judge_by: Annotated[
        str | None,
        typer.Option(help="Step times relative to the one-worker cell of the run, plain ones, or auto: what is there."),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="Store the one run that is given as a baseline, a JSON file.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write verdict and tables to this file as Markdown.")] = None,
    as_json: o.Json = False,
) -> None:
    """Compare run B with run A: what changed, what is slower or faster and how certain that is."""
    from worldsize.analysis.compare.comparison import compare_runs
    from worldsize.analysis.compare.snapshot import read_snapshot
    from worldsize.cli.compare_display import print_comparison, store, written_by
    from worldsize.config import CompareSettings, validated
    from worldsize.errors import UsageError
    from worldsize.report.compare_tables import compare_markdown
    from worldsize.results.folder import write_whole

    settings = validated(CompareSettings, o.settings(ctx, "a", "b", "save", "markdown", "as_json"))
    if save is not None:
        if b is not None or settings != CompareSettings() or markdown is not None:
            raise UsageError("--save stores one run and compares nothing: worldsize compare RUN --save FILE")
        store(a, save, as_json=as_json)
        return
    if b is None:
        raise UsageError(
            "a second run is missing: worldsize compare A B\nTo store one: worldsize compare RUN --save FILE"
        )
    record = compare_runs(read_snapshot(a), read_snapshot(b), settings, (str(a), str(b)))
    if as_json:
        print(record.model_dump_json())
    else:
        print_comparison(record)
    if markdown is not None:
        with written_by("--markdown"):
            write_whole(markdown, compare_markdown(record))
    if record.exit_status:
        raise typer.Exit(record.exit_status)
