"""What a rehearsal shows while it runs: what is real of it, first of all, and its links before its cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from worldsize.analysis.rehearsal import first_line, links_text
from worldsize.cli.console import lines
from worldsize.cli.display import Display
from worldsize.config import StudySettings
from worldsize.results.folder import load_run
from worldsize.study.plan import PlannedCell


class RehearsalDisplay(Display):
    """The display of a study, with what a rehearsal has beside it."""

    def __init__(self, settings: StudySettings, folder: Path) -> None:
        super().__init__()
        self._settings, self._folder = settings, folder

    def __enter__(self) -> Self:
        self._paragraph(first_line(self._settings))
        return super().__enter__()

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        """The links have been tested by now."""
        for record in load_run(self._folder).comm.values():
            if record.links:
                self._paragraph(links_text(record))
        super().planned(cells, steps, left_s)

    def _paragraph(self, text: str) -> None:
        for line in lines(text, self._console.width, indent="  "):
            self._print(line)
