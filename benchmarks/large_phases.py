"""How the time of a report is divided: `python benchmarks/large_phases.py RUN` prints it as JSON.

Reading is opening the records and the samples; queries read columns as they go, so that is in the analysis. Drawing is
making the tables and charts, writing the page and all other files.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

BEGAN = time.perf_counter()


class Phases:
    """Seconds of each phase; a phase within another one is taken off it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = [0.0]

    def timed(self, phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed as this phase."""

        def timing(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            self._inner.append(0.0)
            try:
                return work(*args, **options)
            finally:
                whole = time.perf_counter() - began
                self.seconds[phase] = self.seconds.get(phase, 0.0) + whole - self._inner.pop()
                self._inner[-1] += whole

        return timing


def main(made: Path) -> None:
    """Make the report and print the seconds and the share of each phase."""
    from worldsize.analysis.study import analyse
    from worldsize.report import contents, write
    from worldsize.results.folder import Cell, load_run

    phases = Phases()
    phases.seconds["starting"] = time.perf_counter() - BEGAN
    reading, drawing = phases.timed("reading", Cell._scan), phases.timed("drawing", contents.sections)
    with patch.object(Cell, "_scan", reading), patch.object(write, "sections", drawing):
        run = phases.timed("reading", load_run)(made)
        analysis = phases.timed("analysis", analyse)(run)
        phases.timed("writing", write.write_report)(made, analysis)
    whole = sum(phases.seconds.values())
    shares = {name: seconds / whole for name, seconds in phases.seconds.items()}
    print(json.dumps({"seconds": phases.seconds, "shares": shares}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
