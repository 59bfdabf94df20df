"""`worldsize comm`: the collective benchmark."""

from pathlib import Path
from typing import Annotated

import typer

from worldsize.cli import options as o
from worldsize.cli.help import MEASURE, OUTPUT, flag


def comm(
    ctx: typer.Context,
    world_size: o.WorldSize = None,
    collectives: Annotated[
        str | None, flag("Collectives to benchmark, by commas.", MEASURE, metavar="NAME,...", several="collectives")
    ] = None,
    top: Annotated[
        str | None, flag("Largest message size, such as 64MiB; the smallest is 1 KiB.", MEASURE, metavar="SIZE")
    ] = None,
    budget: o.Budget = None,
    samples: Annotated[int | None, flag("Take K samples of each size.", MEASURE)] = None,
    backend: o.Backend = None,
    threads_per_worker: o.ThreadsPerWorker = None,
    hosts: o.Hosts = None,
    link: o.Link = None,
    link_latency: o.LinkLatency = None,
    csv: Annotated[
        Path | None, flag("Write the table to this file as CSV.", OUTPUT, metavar="FILE", default="no file")
    ] = None,
    out: Annotated[
        Path | None, flag("Write the raw samples to this file as JSON.", OUTPUT, metavar="FILE", default="no file")
    ] = None,
    as_json: o.Json = False,
) -> None:
    """Benchmark the collectives between workers.

    Prints time, algbw and busbw by message size, and fits the α–β cost model.
    """
    import sys
    import tempfile

    from worldsize.analysis.comm_report import comm_report, comm_warnings
    from worldsize.cli.comm_display import CommDisplay, print_comm
    from worldsize.cli.json_output import print_json
    from worldsize.config import CommSettings, validated
    from worldsize.report.comm_tables import comm_table
    from worldsize.report.tables import to_csv
    from worldsize.results.folder import write_whole
    from worldsize.study.budget import began_s
    from worldsize.study.comm import run_comm
    from worldsize.study.comm_budget import check_budget, within

    flags = o.settings(ctx, "csv", "out", "as_json")
    if "top" in flags:
        flags["top_bytes"] = flags.pop("top")
    if isinstance(flags.get("hosts"), int) and world_size is None:
        flags["world_size"] = flags["hosts"]
    settings = validated(CommSettings, flags)
    check_budget(settings)
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder, CommDisplay(settings.budget_s) as display:
        record = run_comm(within(settings, began_s()), Path(folder), sys.argv, listener=display)
    if out is not None:
        write_whole(out, record.model_dump_json(indent=2) + "\n")
    if csv is not None:
        write_whole(csv, to_csv(comm_table(record)))
    for warning in comm_warnings(record):
        print(f"worldsize: {warning.message}", file=sys.stderr)
    if as_json:
        print_json(comm_report(record).model_dump(mode="json"))
    else:
        print_comm(record)
