"""A made study under the display of the commands, and its results, in a process of its own: `FOLDER`.

Its clock is that of the made steps, so nothing waits; what is printed is what a person would see.
"""

import sys
from dataclasses import replace
from pathlib import Path

from fake_cells import FakeExecutor, findings
from fake_study import STUDY, grid, noisy
from made_runs import make_run, usual_cells
from worldsize.analysis.study import analyse
from worldsize.cli.display import Display
from worldsize.cli.results import print_results
from worldsize.results.folder import load_run
from worldsize.study.ledger import Ledger
from worldsize.study.running import announce
from worldsize.study.schedule import Schedule

MODEL = "\x1b[31mred\x1b[0m"
"""A name that would steer a terminal."""


def show(folder: Path) -> None:
    executor = FakeExecutor(folder / "fake", 0, noisy(0.2))
    ledger = Ledger(folder / "fake", 0, {})
    with Display(clock=lambda: executor.clock_s) as display:
        schedule = Schedule(grid("single", "ddp", "all-reduce"), STUDY, executor, ledger, display)
        announce(schedule, findings(), display)
        schedule.run()
    cells = [*usual_cells(), replace(usual_cells()[-1], strategy=MODEL)]
    made = make_run(folder / "made", cells)
    print_results(analyse(load_run(made)), made / "report" / "index.html")


if __name__ == "__main__":
    show(Path(sys.argv[1]))
