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
        str | None, flag("Collectives to time, by commas.", MEASURE, metavar="NAME,...", several="collectives")
    ] = None,
    top: Annotated[
        str | None, flag("Largest size, such as 64MiB; the smallest is 1 KiB.", MEASURE, metavar="SIZE")
    ] = None,
    samples: Annotated[int | None, flag("Samples of each size.", MEASURE)] = None,
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
    """Measure what the link between workers can do.

    Time, algbw and busbw of each collective by size, and the α–β model.
    """
    import sys
    import tempfile

    from worldsize.analysis.interfaces import slow_peers
    from worldsize.cli.console import lines, output
    from worldsize.cli.tables import terminal_table
    from worldsize.config import CommSettings, validated
    from worldsize.report.comm_tables import comm_table
    from worldsize.report.narrow_tables import comm_summary, model_summary
    from worldsize.report.tables import to_csv
    from worldsize.results.folder import write_whole
    from worldsize.study.comm import run_comm

    flags = o.settings(ctx, "csv", "out", "as_json")
    if "top" in flags:
        flags["top_bytes"] = flags.pop("top")
    if isinstance(flags.get("hosts"), int) and world_size is None:
        flags["world_size"] = flags["hosts"]
    settings = validated(CommSettings, flags)
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder:
        record = run_comm(settings, Path(folder), sys.argv)
    if out is not None:
        write_whole(out, record.model_dump_json(indent=2) + "\n")
    if csv is not None:
        write_whole(csv, to_csv(comm_table(record)))
    slow = slow_peers(record)
    if slow:
        typer.echo(f"worldsize: {slow.message}", err=True)
    if as_json:
        print(record.model_dump_json())
        return
    console = output()
    for table in (comm_summary(record), model_summary(record)):
        console.print(terminal_table(table))
        console.print("\n".join(lines(table.remarks, console.width)), style="dim", soft_wrap=True)
