"""What `worldsize comm` shows: on stderr how far it is, on stdout what it found.

The display has no thread and draws between two samples, while the ranks wait: it takes nothing from what is timed.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from worldsize.analysis.collective_cost import IN_TURN, bus_factor
from worldsize.analysis.numbers import number_text, percent_text, size_text
from worldsize.cli.console import duration_text, lines, messages, output
from worldsize.cli.tables import TerminalTable
from worldsize.report.narrow_tables import comm_summary, model_summary
from worldsize.results.comm_records import CommRecord
from worldsize.study.sampling import Case, Known, Sampling

BETWEEN_S = 1.0
"""Least time between two drawings: what changed gets new intervals, which takes some milliseconds."""
LINE_S = 3.0
"""Least time between two lines without a terminal, unless a size was called for the first time or a round is over."""
WELL_KNOWN = 0.1
"""Half of an interval, as a share of the value, up to which a bandwidth is no longer dim."""
WIDE = 100
"""Columns from which on intervals fit as well."""


class CommDisplay:
    """Listens to a benchmark and shows how far it is: a table that grows on a terminal, lines elsewhere."""

    def __init__(self, budget_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget_s, self._clock = budget_s, clock
        self._begun_s = self._spoke_s = clock()
        self._rounds, self._workers = 0, 0
        self._console = messages(quiet=False)
        live = self._console.is_interactive and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False, transient=True) if live else None

    def __enter__(self) -> Self:
        with self._going_on():
            if self._live is not None:
                self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        with self._going_on():
            if self._live is not None:
                self._live.stop()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """A terminal that is closed ends the display, not the benchmark."""
        try:
            yield
        except OSError:
            self._live, self._console = None, messages(quiet=True)

    def starting(self, workers: int) -> None:
        """Say that the workers are started."""
        self._workers = workers
        self._show(Text(f"starting {workers} workers"), f"starting {workers} workers")

    def sampled(self, sampling: Sampling) -> None:
        """Show what is known, unless that was done a moment ago."""
        over = sampling.rounds > self._rounds
        self._rounds = sampling.rounds
        since_s = self._clock() - self._spoke_s
        if self._live is not None and since_s >= BETWEEN_S:
            table = grid(sampling, self._workers, wide=self._console.width >= WIDE)
            # Where it does not fit, rich would cut its numbers.
            fits = self._console.measure(table).minimum <= self._console.width
            self._show(Group(Text(self._far(sampling)), *([table] if fits else [])), "")
        elif self._live is None and (since_s >= LINE_S or (over and not sampling.widening)):
            self._show("", self._far(sampling))

    def _show(self, area: RenderableType, line: str) -> None:
        self._spoke_s = self._clock()
        with self._going_on():
            if self._live is not None:
                self._live.update(area, refresh=True)
            else:
                self._console.print("\n".join(lines(f"  {line}", self._console.width, indent="    ")))

    def _far(self, sampling: Sampling) -> str:
        """Phase, samples and time in a line, and what is known least well."""
        spent_s = self._clock() - self._begun_s
        spent = duration_text(spent_s) + ("" if self._budget_s is None else f" of {duration_text(self._budget_s)}")
        count = sum(len(known.kept) for known in sampling.known.values())
        text = f"{sampling.phase}: {len(sampling.known)} of {len(sampling.cases)} sizes, {count} sample(s), {spent}"
        widest = sampling.widest
        if widest is not None and math.isfinite(widest.half_width):
            case, wide = widest.case, widest.half_width > 1
            known = "more than ± 100 %" if wide else f"± {percent_text(widest.half_width)}"
            text += f"; widest interval: {case.collective}, {size_text(case.size_bytes)}, {known}"
        return text


def grid(sampling: Sampling, workers: int, *, wide: bool) -> RenderableType:
    """Bus bandwidth in GB/s of each collective by size, dim until it is known well; half of the interval if `wide`.

    All seven take 78 columns where they are not.
    """
    names = list(dict.fromkeys(case.collective for case in sampling.cases if case.collective != IN_TURN))
    table = Table.grid(padding=(0, 2 if wide else 1, 0, 0))
    for _ in ("", *names):
        table.add_column(justify="right", no_wrap=True)
    table.add_row(*(Text(head, style="dim") for head in ("busbw GB/s" if wide else "GB/s", *names)))
    for size in dict.fromkeys(case.size_bytes for case in sampling.cases):
        found = [sampling.known.get(Case(name, size)) for name in names]
        if any(found):
            table.add_row(Text(size_text(size)), *(_cell(known, workers, wide=wide) for known in found))
    return table


def _cell(known: Known | None, workers: int, *, wide: bool) -> Text:
    """`0.118`, or `0.118 ±2%`."""
    if known is None:
        return Text("")
    case, half = known.case, known.half_width
    rate = case.size_bytes * bus_factor(case.collective, workers) / known.time_s.value
    width = f" ±{100 * half:.2g}%" if wide and half < 1 else ""
    return Text(number_text(rate / 1e9) + width, style="" if half <= WELL_KNOWN else "dim")


def print_comm(record: CommRecord) -> None:
    """The tables, with what their numbers mean."""
    console = output()
    for table in (comm_summary(record), model_summary(record)):
        console.print(TerminalTable(table))
        console.print("\n".join(lines(table.remarks, console.width)), style="dim", soft_wrap=True)
