"""Follow a submitted study from its run folder and from what Slurm says of its job; nothing runs here."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from worldsize.cli.console import printable
from worldsize.cli.display import LINE_S, MARKS, ending_text
from worldsize.errors import OutputError
from worldsize.launch.slurm.files import ending
from worldsize.launch.slurm.state import JobState, state_of
from worldsize.results.folder import Cell, load_run
from worldsize.results.rank_files import GrowingFile, rank_file

EVERY_S = 2.0
"""Between two looks at the run folder."""
ASK_EVERY_S = 5.0
"""Between two questions to Slurm, whose controller serves the whole cluster."""
MAY_GO_ON = ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL")
"""Ends after which Slurm may queue a job again; they are believed when they last."""
LATE_S = 15.0
"""How long the last files of a job may take to be seen here, on a file system over a network."""


class Follower:
    """Says what changes: the job's state, each cell that ends, and now and then how many steps there are."""

    def __init__(self, out: Path, job_id: str, console: Console, ask: Callable[[str], JobState] = state_of) -> None:
        self.out, self.job_id = out, job_id
        self._console = console
        self._ask = ask
        self._files: dict[Path, GrowingFile] = {}
        self._shown: set[tuple[Path, str]] = set()
        """Cells whose end was told, each with its state: a stopped one may go on."""
        self._planned = False
        self._last_state = ""
        self._last_s = time.monotonic()

    def follow(self) -> JobState:
        """Return when the job has ended, with its last state."""
        before = JobState("PENDING")
        while True:
            state = self._ask(self.job_id)
            final = state.ended and (state == before or state.name not in MAY_GO_ON)
            if final:
                self._wait_for_the_last_files(state)
            self._look()
            if final or not state.ended:
                self._tell_state(state)
            if final:
                return state
            before = state
            self._rest()

    def _rest(self) -> None:
        """Wait until Slurm may be asked again, with an eye on the run folder."""
        until_s = time.monotonic() + ASK_EVERY_S
        while time.monotonic() < until_s:
            time.sleep(EVERY_S)
            self._look()
        if time.monotonic() - self._last_s >= LINE_S:  # in the queue there is nothing to look at
            self._print(f"job {self.job_id}: {self._last_state}")

    def _tell_state(self, state: JobState) -> None:
        if str(state) != self._last_state:
            self._last_state = str(state)
            self._print(f"job {self.job_id}: {state}")

    def _look(self) -> None:
        """Tell what is new in the run folder."""
        if not (self.out / "study.json").exists():
            return
        try:
            run = load_run(self.out)
        except OutputError:
            return  # seen in the middle of a change; the next look will do
        planned = sum(len(part.study.plan) for part in (run, *run.parts.values()))
        if not self._planned:
            self._planned = True
            self._print(f"{planned} cell(s)")
        cells = [cell for part in (run, *run.parts.values()) for cell in part.cells.values()]
        for cell in cells:
            self._tell_end(cell)
        if time.monotonic() - self._last_s >= LINE_S:
            ended = sum(cell.record.state in MARKS for cell in cells)
            self._print(f"  {ended} of {planned} cells, {self._steps(cells)} steps")

    def _tell_end(self, cell: Cell) -> None:
        record, key = cell.record, (cell.folder, cell.record.state)
        if record.state in MARKS and key not in self._shown:
            self._shown.add(key)
            mark, style = MARKS[record.state]
            self._print(Text.assemble((mark, style), f"  {printable(ending_text(record))}"))

    def _steps(self, cells: Sequence[Cell]) -> int:
        return sum(self._files.setdefault(cell.folder, GrowingFile(rank_file(cell.folder, 0))).skip() for cell in cells)

    def _wait_for_the_last_files(self, state: JobState) -> None:
        """A job that ended by itself has said how."""
        until_s = time.monotonic() + LATE_S
        while (
            state.name in ("COMPLETED", "FAILED")
            and ending(self.out, self.job_id) is None
            and time.monotonic() < until_s
        ):
            time.sleep(EVERY_S / 4)

    def _print(self, line: str | Text) -> None:
        self._console.print(line)
        self._last_s = time.monotonic()
