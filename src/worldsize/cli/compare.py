"""`worldsize compare`: runs against runs, or against a stored baseline; the gate of continuous integration."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli.complete import runs_or_baselines
from worldsize.cli.flags import Flags, takes
from worldsize.cli.panels import OUTPUT

if TYPE_CHECKING:
    from worldsize.results.comparison_records import ComparisonRecord

Earlier = Annotated[
    str, o.argument("The earlier runs: run folders or stored baselines, comma-separated.", completion=runs_or_baselines)
]
Later = Annotated[str | None, o.argument("The later runs, in the same way.", completion=runs_or_baselines)]
Save = Annotated[
    Path | None, o.flag("Store the runs of A as a baseline (JSON).", OUTPUT, metavar="FILE", default="nothing")
]
Markdown = Annotated[
    Path | None,
    o.flag("Write verdict and tables to this file as Markdown.", OUTPUT, metavar="FILE", default="no file"),
]


@takes("CompareSettings")
def compare(
    flags: Flags,
    a: Earlier,
    b: Later = None,
    save: Save = None,
    markdown: Markdown = None,
    as_json: o.Json = False,
) -> None:
    """Compare runs: what became slower or faster.

    All ratios are B / A, with 95 % intervals. Give several runs on each side (A1,A2 B1,B2): one run cannot tell a
    change from the variation between runs. With --fail-above it is a gate for continuous integration.
    """
    from worldsize.analysis.compare.comparison import compare_runs
    from worldsize.analysis.compare.sides import read_side
    from worldsize.cli.compare_display import store
    from worldsize.config import CompareSettings, validated
    from worldsize.errors import DAMAGED, UsageError

    settings = validated(CompareSettings, flags.of("CompareSettings"))
    if save is not None:
        if b is not None or settings != CompareSettings() or markdown is not None:
            raise UsageError("--save stores one side and compares nothing: worldsize compare RUN --save FILE")
        if store(a, save, as_json=as_json):
            raise typer.Exit(DAMAGED)
        return
    if b is None:
        raise UsageError(
            "a second side is missing: worldsize compare A1,A2 B1,B2\nTo store one: worldsize compare RUN --save FILE"
        )
    record = compare_runs(read_side(a), read_side(b), settings, (a, b))
    _show(record, markdown, as_json=as_json)
    if record.exit_status:
        raise typer.Exit(record.exit_status)


def _show(record: "ComparisonRecord", markdown: Path | None, *, as_json: bool) -> None:
    from worldsize.cli.compare_display import print_comparison
    from worldsize.cli.output import print_json, written_by
    from worldsize.report.compare_tables import compare_markdown
    from worldsize.results.files import write_whole

    if as_json:
        print_json(record.model_dump(mode="json"))
    else:
        print_comparison(record)
    if markdown is not None:
        with written_by("--markdown"):
            write_whole(markdown, compare_markdown(record))
