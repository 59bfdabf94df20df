"""What a study shows while it runs, on stderr: a small live area on a terminal, plain lines elsewhere.

Cores that are measured must not be shared with a display. So it draws when it is told something, at most every two
seconds while steps are timed, and is asleep otherwise. Only without a terminal, when nothing is told for long, does a
line come from a thread (heartbeat.py), which sleeps until then.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from worldsize.analysis.numbers import number_text, percent_text
from worldsize.analysis.statistics import half_width
from worldsize.cli.console import LOOKING, duration_text, lines, messages, printable
from worldsize.cli.heartbeat import Heartbeat
from worldsize.cli.progress import CellProgress, Progress, rate_text
from worldsize.results.records import CellRecord
from worldsize.results.step_records import StepRecord
from worldsize.study.plan import PlannedCell
from worldsize.traits import traits_of

WITHIN_S = 2.0
"""Least time between two drawings while steps are timed: one takes a few milliseconds of one core."""
BETWEEN_S = 0.25
"""The same between two turns, which may be short."""
SHORT_S = 4.0
"""Of a budget for each cell, about what starting it, its proof and one block take on two cores."""
LINE_S = 25.0
"""Least time between two lines of progress without a terminal; less than BEAT_S, whose lines know less."""
MAX_ROWS = 12
"""Cells that are listed; more would leave no room for anything else."""
OTHER_LINES = 6
"""Lines of the terminal that are kept for the rest."""
BAR_WIDTH = 14
BETWEEN = 2
"""Columns between two columns."""
MARKS = {"complete": ("✓ done", "green"), "failed": ("✗ failed", "red"), "interrupted": ("– stopped", "yellow")}
NO_MEMORY = ("✗ does not fit", "yellow")


class Display:
    """Listens to a study and shows how far it is."""

    def __init__(self, *, beating: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        """`beating` is off where another process hears how far the study is, and this one is told nothing."""
        self._console = messages()
        self._clock = clock
        self._progress = Progress()
        self._spoke_s = clock()
        live = self._console.is_interactive and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if live else None
        self._heartbeat = Heartbeat(LOOKING, self._say) if beating and not live else None

    def __enter__(self) -> Self:
        with self._going_on():
            if self._live is not None:
                self._live.start()
                self._live.update(Text(LOOKING), refresh=True)
        if self._heartbeat is not None:
            self._heartbeat.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._heartbeat is not None:
            self._heartbeat.__exit__()
        with self._going_on():
            if self._live is not None:
                self._live.stop()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """A terminal that is closed ends the display, not the study that it shows."""
        try:
            yield
        except OSError:
            self._live, self._console = None, messages(quiet=True)

    def planned(self, cells: Sequence[PlannedCell], steps: int, left_s: float | None = None) -> None:
        """Say how much is ahead."""
        known = steps or left_s is not None or not cells  # a sweep plans as it goes
        self._progress = Progress(cells if known else (), steps, self._clock(), left_s)
        if cells:
            self._print(work_text(cells[-1]))
        self._print(ahead_text(cells, steps, left_s) if known else f"{len(cells)} sweep(s)")
        self._draw(0)

    def starting(self, cell: PlannedCell) -> None:
        """Say which workers are started."""
        self._progress.starting(cell, self._clock())
        if self._live is None:
            self._print(f"  starting {cell.id}", f"starting {cell.id}")
        self._draw(0)

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """Count the steps; steps may be timed just now."""
        self._progress.advanced(cell, steps, last, self._clock())
        if self._heartbeat is not None:
            self._heartbeat.what = f"at {cell.id}, {self._progress.done} steps in all"
        self._draw(WITHIN_S)

    def rested(self, record: CellRecord) -> None:
        """Between two turns there is time to draw."""
        self._progress.rested(record.id, self._clock())
        self._draw(BETWEEN_S)

    def narrowed(self, cell: PlannedCell, half_width: float | None, blocks: int) -> None:
        """Keep how well a cell is known; the next turn's end shows it."""
        self._progress.narrowed(cell, half_width, blocks)

    def skipped(self, steps: int) -> None:
        """Take steps that will not be run off the bar."""
        self._progress.skipped(steps)

    def ended(self, record: CellRecord) -> None:
        """A line for each cell that ended, which stays."""
        self._progress.ended(record, self._clock())
        mark, style = MARKS.get(record.state, (record.state, ""))
        if record.error and record.error.kind == "OutOfMemory":
            mark, style = NO_MEMORY
        self._print(Text.assemble((mark, style), f"  {printable(ending_text(record))}"))
        self._draw(0)

    def _print(self, line: str | Text, what: str = "") -> None:
        """A line that stays; from now on `what` goes on."""
        self._say(line)
        self._spoke_s = self._clock()
        if self._heartbeat is not None:
            self._heartbeat.progress(what)

    def _say(self, line: str | Text) -> None:
        with self._going_on():
            self._console.print(line)

    def _draw(self, every_s: float) -> None:
        """Show how far the study is, unless that was done a moment ago."""
        now_s = self._clock()
        if self._live is not None:
            if now_s - self._spoke_s >= every_s:
                self._spoke_s = now_s
                with self._going_on():
                    self._live.update(self._area(), refresh=True)
        elif now_s - self._spoke_s >= LINE_S:
            for line in lines(f"  {far_text(self._progress)}", self._console.width, indent="    "):
                self._print(line)

    def _area(self) -> RenderableType:
        progress = self._progress
        bar = ProgressBar(total=max(1, progress.steps), completed=progress.done, width=BAR_WIDTH)
        first = Table.grid(padding=(0, 2, 0, 0))
        first.add_row(
            *([bar] if progress.steps else []), Text(counts_text(progress), no_wrap=True, overflow="ellipsis")
        )
        blocks: list[RenderableType] = [first]
        if progress.running is not None:
            running = progress.running
            starting = "starting " if running.last is None else ""
            blocks.append(Text(starting + rate_text(running.cell, running.last), no_wrap=True, overflow="ellipsis"))
        room = min(MAX_ROWS, self._console.height - OTHER_LINES)
        listed = [each for each in progress.open.values() if each.cell.settings.epochs is None]
        if room > 0 and (progress.steps or progress.budget_s) and listed:
            blocks.append(_rows(listed, room, progress.running, self._console.width))
        return Group(*blocks)


def _rows(cells: Sequence[CellProgress], room: int, running: CellProgress | None, width: int) -> RenderableType:
    """How well each open cell is known; in a narrow terminal its name is cut, and no number is."""
    target = cells[0].cell.settings.target_interval
    rows = [("  cell", "ms/step", "interval", f"goal ± {percent_text(target)}" if target else "")]
    for each in cells[:room]:
        mark = "▸ " if running is not None and each.cell.id == running.cell.id else "  "
        step = number_text(1e3 * each.last.step_s) if each.last else ""
        known = "" if each.half_width is None else f"± {percent_text(each.half_width)}"
        rows.append((mark + each.cell.id, step, known, "✓" if each.precise else ""))
    numbers = sum(max(len(row[place]) for row in rows) + BETWEEN for place in (1, 2, 3))
    table = Table.grid(padding=(0, BETWEEN, 0, 0))
    table.add_column(overflow="ellipsis", no_wrap=True, max_width=max(1, width - numbers - BETWEEN))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, step, known, aim in rows:
        style = "dim" if name is rows[0][0] else ""
        texts = [Text(each, style=style) for each in (name, step, known)]
        table.add_row(*texts, Text(aim, style=style or "green"))
    if len(cells) > room:
        table.add_row(Text(f"  and {len(cells) - room} more", style="dim"))
    return table


def ahead_text(cells: Sequence[PlannedCell], steps: int, left_s: float | None) -> str:
    """What is ahead of a study: a time, or steps."""
    if not cells:
        return "no cell is missing: nothing is run"
    named = f"{len(cells)} cell{'' if len(cells) == 1 else 's'}"
    if left_s is not None and left_s < SHORT_S * len(cells):
        return f"{named} and about {duration_text(left_s)} left, which is short; each is still timed for one block"
    if left_s is not None:
        return f"{named}; the answer comes within about {duration_text(left_s)}"
    cap = cells[0].settings.steps
    if cap is None:
        return f"{named}, {steps:,} steps"
    return f"{named}, at most {cap:,} timed steps each"


def work_text(cell: PlannedCell) -> str:
    """What is trained and on what, as far as a person may not have asked for it: an experiment brings its own."""
    settings, threads = cell.settings, cell.placement.threads_per_worker
    hosts = "" if settings.emulated is None else f", {settings.emulated.count} emulated hosts"
    work = settings.workload or f"{settings.model} on {settings.data}"
    work = work if settings.program is None else settings.program.text
    work = work if settings.replay is None else f"replay of {settings.replay.run} ({settings.model})"
    times = settings.accumulate
    steps = "" if times == 1 else f", {times} micro-batches in a step (B = N·b·{times})"
    return f"{work}{hosts}, {threads} thread{'' if threads == 1 else 's'} per worker{steps}"


def counts_text(progress: Progress) -> str:
    """Cells and steps, done and in all, and the time left: a bound where precision may end cells sooner."""
    if progress.budget_s is not None:
        left = f", at most {duration_text(progress.left_s or 0.0)} left"
        if progress.over_s:
            left = f", {duration_text(progress.over_s)} over the budget"
        steps = f"{progress.done:,} step{'' if progress.done == 1 else 's'}"
        return f"{progress.ended_cells} of {progress.cells} cells, {steps}{left}"
    if not progress.steps:
        return f"{progress.ended_cells} batch(es) tried"
    parts = [f"{progress.ended_cells} of {progress.cells} cells", f"{progress.done} of {progress.steps} steps"]
    if progress.left_s is not None:
        sooner = any(each.cell.settings.epochs is None for each in progress.open.values())
        parts.append(f"{'at most' if sooner else 'about'} {duration_text(progress.left_s)} left")
    return ", ".join(parts)


def far_text(progress: Progress) -> str:
    """The same in one line, with the pace of the cell that runs, and its interval."""
    running = progress.running
    text = counts_text(progress)
    if running is None or running.last is None or not running.last.step_s > 0:
        return text
    text += f"; {running.cell.id} {number_text(1 / running.last.step_s)} steps/s"
    if running.half_width is not None:
        target = running.cell.settings.target_interval
        goal = f" (goal ± {percent_text(target)})" if target else ""
        text += f", interval ± {percent_text(running.half_width)}{goal}"
    return text


def ending_text(record: CellRecord) -> str:
    """What came out of a cell, in a line."""
    text = record.id
    if record.error:
        return f"{text}: {record.error.message.splitlines()[0]}"
    if record.summary is not None:
        step_s = record.summary.step_s
        width = None if record.summary.blocks == 1 else half_width(step_s)  # how blocks differ is not known then
        text += f"  {number_text(1e3 * step_s.value)} ms/step" + ("" if width is None else f" ± {percent_text(width)}")
        text += f"  {number_text(record.summary.samples_per_s.value)} samples/s"
    if record.evaluations:
        last = record.evaluations[-1]
        after = f"epoch {last.epoch + 1}" if record.of_epochs else f"{last.step:,} steps"
        text += f"  test accuracy {last.test_accuracy:.1%} after {after}"
        if traits_of(record.strategy, record.own_traits).travels == "weights" and record.world_size > 1:
            text += " (averaged weights)"
    return text
