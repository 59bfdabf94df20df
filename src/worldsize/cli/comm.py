"""`worldsize comm`: the collective benchmark."""

from pathlib import Path
from typing import Annotated

from worldsize.cli import options as o
from worldsize.cli.flags import Flags, takes
from worldsize.cli.panels import OUTPUT

Csv = Annotated[Path | None, o.flag("Write the table to this file as CSV.", OUTPUT, metavar="FILE", default="no file")]
Samples = Annotated[
    Path | None, o.flag("Write the raw samples to this file as JSON.", OUTPUT, metavar="FILE", default="no file")
]


@takes("CommSettings", top="top_bytes")
def comm(flags: Flags, csv: Csv = None, out: Samples = None, as_json: o.Json = False) -> None:
    """Benchmark the collectives between workers.

    Prints time, algbw and busbw by message size, and fits the α–β cost model.
    """
    import sys
    import tempfile

    from worldsize.analysis.comm_report import comm_report, comm_warnings
    from worldsize.cli.comm_display import CommDisplay, print_comm
    from worldsize.cli.output import print_json
    from worldsize.config import CommSettings, validated
    from worldsize.report.comm_tables import comm_table
    from worldsize.report.tables import to_csv
    from worldsize.results.files import write_whole
    from worldsize.study.budget import began_s
    from worldsize.study.comm import run_comm
    from worldsize.study.comm_budget import check_budget, within
    from worldsize.study.comm_devices import gpus_for

    given = flags.of("CommSettings")
    if isinstance(given.get("hosts"), int):
        given = {"world_size": given["hosts"], **given}
    settings = validated(CommSettings, given)
    check_budget(settings)
    gpus = gpus_for(settings)
    with tempfile.TemporaryDirectory(prefix="worldsize-") as folder, CommDisplay(settings.budget_s) as display:
        record = run_comm(within(settings, began_s()), Path(folder), sys.argv, gpus=gpus, listener=display)
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
