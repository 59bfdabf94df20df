"""`worldsize scale`: runs that were metered one by one, joined into a scaling study."""

from pathlib import Path
from typing import Annotated

from worldsize.cli import complete
from worldsize.cli import options as o

Runs = Annotated[
    list[Path], o.argument("Run folders: one worker, two, four …, in any order.", completion=complete.run_folder)
]


def scale(runs: Runs, out: o.Out = None, as_json: o.Json = False) -> None:
    """Join several runs into a scaling study, and report it.

    For trainings of your own that wrote a run folder each (worldsize.meter). They were not interleaved, so drift
    of the machine between them is in the ratios.
    """
    import sys

    from worldsize.analysis.study import analyse
    from worldsize.cli.results import exit_for_damage, report_and_print
    from worldsize.measure.machine import provenance
    from worldsize.results.folder import load_run, new_run_folder
    from worldsize.results.joined import join_runs

    place = out or new_run_folder("scale")
    # Samples that are lost show when they are analysed: what they were counts in no joined cell unseen.
    join_runs(runs, place, provenance(sys.argv), lambda folder: analyse(load_run(folder)).run)
    exit_for_damage(damaged=report_and_print(place, as_json=as_json).damaged)
