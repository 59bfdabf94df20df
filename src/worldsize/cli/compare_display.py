"""What `worldsize compare` prints: the verdict first, then the tables."""

from pathlib import Path

from rich.console import Console

from worldsize.analysis.compare.sides import named_runs, read_side, refuse_unlike
from worldsize.cli.output import print_json, written_by
from worldsize.cli.tables import TerminalTable
from worldsize.errors import UsageError
from worldsize.report.compare_tables import (
    SAME,
    changes_table,
    compact_cells,
    compact_quantities,
    gate_lines,
    lone_lines,
    side_line,
)
from worldsize.results.baseline_records import write_baseline
from worldsize.results.comparison_records import ComparisonRecord, Outcome

COLOURS: dict[Outcome, str] = {"passed": "green", "failed": "red", "not known": "yellow"}


def print_comparison(record: ComparisonRecord) -> None:
    """Gate, verdict, tables, and what the ratios do not know, on stdout."""
    console = Console(highlight=False)
    if record.gate is not None:
        head, *lines = gate_lines(record.gate)
        console.print(head, style=f"bold {COLOURS[record.gate.outcome]}", markup=False)
        for line in lines:
            console.print(f"  {line}", markup=False)
        if record.gate.settle:
            console.print("To settle it:", markup=False)
            for line in record.gate.settle:  # not wrapped: it is there to be pasted
                console.print(f"  {line}", markup=False, soft_wrap=True)
        console.print()
    console.print(record.verdict, markup=False, style="bold")
    for letter, side in (("A", record.a), ("B", record.b)):
        console.print(side_line(letter, side), markup=False, style="dim")
    _print_cells(record, console)
    for line in (*record.caveats, *lone_lines(record)):
        console.print(line, markup=False)
    changed = changes_table(record)
    console.print()
    console.print(TerminalTable(changed) if changed.rows else SAME)


def _print_cells(record: ComparisonRecord, console: Console) -> None:
    cells, moved = compact_cells(record), compact_quantities(record)
    if cells.rows:
        console.print()
        console.print(TerminalTable(cells))
        console.print(cells.note, markup=False, style="dim")
    for cell in record.cells:
        if cell.remark:
            console.print(f"{cell.id}: {cell.remark}", markup=False)
    if moved.rows:
        console.print()
        console.print(TerminalTable(moved))
    console.print()


def store(side: str, file: Path, *, as_json: bool) -> list[str]:
    """Store one run, or several of the same work, as a baseline; returns the cells that cannot be read.

    Raises UsageError for a run without numbers.
    """
    runs = read_side(side)
    names = named_runs(side, len(runs))
    refuse_unlike(runs, names)
    numbers = [{cell.id for cell in run.cells if cell.blocks} for run in runs]
    for name, found in zip(names, numbers, strict=True):
        if not found:
            raise UsageError(f"{name} has no cell with numbers: nothing could be compared with it")
    measured = [cell.id for cell in runs[0].cells if all(cell.id in found for found in numbers)]
    with written_by("--save"):
        write_baseline(file, runs[0].model_copy(update={"further": runs[1:]}))
    if as_json:
        print_json({"saved": str(file), "cells": measured, "runs": len(runs)})
    else:
        several = "" if len(runs) == 1 else f"{len(runs)} runs; "
        in_all = "have numbers" if len(runs) == 1 else "have numbers in all"
        print(f"saved: {file} ({several}{len(measured)} of {len(runs[0].cells)} cells {in_all})")
    cells = [cell.id for run in runs for cell in run.cells if cell.state == "unreadable"]
    return [*cells, *(part for run in runs for part in run.unread_parts)]
