"""The live display of a study, and its results in the terminal."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from worldsize.analysis.numbers import estimate_text
from worldsize.analysis.study import analyse
from worldsize.analysis.verdict import verdict
from worldsize.cli.tables import terminal_table
from worldsize.report.comm_tables import communication_summary
from worldsize.report.fact_tables import accuracy_table
from worldsize.report.profile_tables import HOW_TO_OPEN, profiled
from worldsize.report.result_tables import compact_table, parts_table
from worldsize.report.tables import turned
from worldsize.results.folder import load_run
from worldsize.results.records import CellRecord, StepRecord
from worldsize.study.plan import PlannedCell

MARKS = {"complete": "✓ done", "failed": "✗ failed", "interrupted": "– stopped"}


class Display:
    """One progress bar for the whole study on a terminal; a line per event elsewhere. All on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self._console = Console(stderr=True, quiet=quiet, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} steps"),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("looking at data and model", total=1)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._bar.stop()

    def planned(self, cells: Sequence[PlannedCell], steps: int) -> None:
        """Say how much is ahead."""
        ahead = f"{len(cells)} cell(s), at most {steps} steps" if steps else f"{len(cells)} sweep(s)"
        self._console.print(ahead)
        self._bar.update(self._task, total=max(steps, 1))

    def starting(self, cell: PlannedCell) -> None:
        """Say which workers are started."""
        self._bar.update(self._task, description=f"starting {cell.id}")
        if not self._console.is_terminal:
            self._console.print(f"  starting {cell.id}")

    def advanced(self, cell: PlannedCell, steps: int, last: StepRecord | None) -> None:
        """Move the bar; show the cell and its last step."""
        self._bar.update(self._task, advance=steps, description=step_text(cell, last))

    def rested(self, record: CellRecord) -> None:
        """Nothing to show between two turns."""

    def skipped(self, steps: int) -> None:
        """Take steps that will not be run off the bar."""
        total = self._bar.tasks[self._task].total or 0
        self._bar.update(self._task, total=max(total - steps, 1))

    def ended(self, record: CellRecord) -> None:
        """A line for each cell that ended."""
        text = f"{MARKS.get(record.state, record.state)}  {record.id}"
        if record.error:
            text += f": {record.error.message.splitlines()[0]}"
        elif record.evaluations:
            last = record.evaluations[-1]
            text += f"  test accuracy {last.test_accuracy:.1%} after epoch {last.epoch + 1}"
        self._console.print(text, markup=False)


def step_text(cell: PlannedCell, last: StepRecord | None) -> str:
    """The cell and its last step: time, samples of all workers per second, loss, accuracy, as far as they are known."""
    parts = [cell.id]
    if last is not None:
        parts.append(f"{last.step_s:.3g} s/step")
        if last.step_s > 0:
            parts.append(f"{cell.settings.global_batch / last.step_s:.4g} samples/s")
        if last.loss is not None:
            parts.append(f"loss {last.loss:.3f}")
        if last.accuracy is not None:
            parts.append(f"accuracy {last.accuracy:.0%}")
    return "  ".join(parts)


def print_results(run: Path, page: Path) -> None:
    """Table, verdict and the path of the report, on stdout."""
    console = Console(highlight=False)
    analysis = analyse(load_run(run))
    console.print()
    results = compact_table(analysis)
    console.print(terminal_table(results))
    if results.note:
        console.print(results.note, style="dim")
    if len(analysis.cells) == 1:
        for alone in (parts_table(analysis), accuracy_table(analysis)):
            if alone.rows:
                console.print(terminal_table(turned(alone)))
    communication = communication_summary(analysis)
    if communication.rows:
        console.print(terminal_table(communication))
    if analysis.observing is not None:
        price = analysis.observing.estimate
        console.print(f"observing: step with instruments ÷ without = {estimate_text(price)}")
    console.print(verdict(analysis), markup=False, soft_wrap=False)
    for cell, warning in analysis.warnings:
        console.print(f"warning ({cell}): {warning.message}", markup=False)
    if profiled(analysis):
        console.print(f"\ntraces: {page.parent}/trace-*.json. {HOW_TO_OPEN}.", markup=False, soft_wrap=True)
    console.print(f"\nreport: {page}", markup=False, soft_wrap=True)


def print_json(folder: Path, page: Path) -> None:
    """Everything that the records say, as one JSON object on stdout."""
    run = load_run(folder)
    content = {
        "run": str(folder),
        "report": str(page),
        "verdict": verdict(analyse(run)),
        "study": run.study.model_dump(mode="json"),
        "cells": {name: cell.record.model_dump(mode="json") for name, cell in run.cells.items()},
    }
    print(json.dumps(content))
