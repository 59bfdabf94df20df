"""`worldsize compare`: two runs, or a run and a stored baseline; the gate of continuous integration."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli.complete import run_or_baseline
from worldsize.cli.help import MEASURE, OUTPUT, argument, flag


def compare(
    ctx: typer.Context,
    a: Annotated[Path, argument("The earlier run: a run folder, or a stored baseline.", complete=run_or_baseline)],
    b: Annotated[Path | None, argument("The run that is compared with it, likewise.", complete=run_or_baseline)] = None,
    fail_above: Annotated[
        str | None,
        flag("Exit with 3 if a cell is surely slower by more than this, such as 5%.", MEASURE, metavar="SHARE"),
    ] = None,
    strict: Annotated[
        bool, flag("Exit with 3 also on what is not certain, or cannot be judged.", MEASURE, "--strict")
    ] = False,
    judge_by: Annotated[
        str | None,
        flag("Step times relative to the run's one-worker cell, plain, or what is there.", MEASURE, choices="judge_by"),
    ] = None,
    save: Annotated[
        Path | None,
        flag("Store the one run that is given as a baseline (JSON).", OUTPUT, metavar="FILE", default="nothing"),
    ] = None,
    markdown: Annotated[
        Path | None,
        flag("Write verdict and tables to this file as Markdown.", OUTPUT, metavar="FILE", default="no file"),
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Compare two runs: what changed, what is slower or faster.

    All ratios are B / A, with their intervals. --fail-above makes it a gate for continuous integration.
    """
    from worldsize.analysis.compare.comparison import compare_runs
    from worldsize.analysis.compare.snapshot import read_snapshot
    from worldsize.cli.compare_display import print_comparison, store, written_by
    from worldsize.config import CompareSettings, validated
    from worldsize.errors import DAMAGED, UsageError
    from worldsize.report.compare_tables import compare_markdown
    from worldsize.results.folder import write_whole

    settings = validated(CompareSettings, o.settings(ctx, "a", "b", "save", "markdown", "as_json"))
    if save is not None:
        if b is not None or settings != CompareSettings() or markdown is not None:
            raise UsageError("--save stores one run and compares nothing: worldsize compare RUN --save FILE")
        if store(a, save, as_json=as_json):
            raise typer.Exit(DAMAGED)
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
