"""What `worldsize compare` prints: the verdict first, then the tables."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from worldsize.analysis.compare.snapshot import read_snapshot
from worldsize.cli.tables import terminal_table
from worldsize.errors import OutputError, UsageError
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
from worldsize.results.comparison_records import ComparisonRecord


def print_comparison(record: ComparisonRecord) -> None:
    """Gate, verdict, tables, and what the ratios do not know, on stdout."""
    console = Console(highlight=False)
    if record.gate is not None:
        head, *told = gate_lines(record.gate)
        console.print(head, style="bold red" if record.gate.failed else "bold green", markup=False)
        for line in told:
            console.print(f"  {line}", markup=False)
        console.print()
    console.print(record.verdict, markup=False, style="bold")
    for letter, side in (("A", record.a), ("B", record.b)):
        console.print(side_line(letter, side), markup=False, style="dim")
    _print_cells(record, console)
    for line in (*record.caveats, *lone_lines(record)):
        console.print(line, markup=False)
    changed = changes_table(record)
    console.print()
    console.print(terminal_table(changed) if changed.rows else SAME)


def _print_cells(record: ComparisonRecord, console: Console) -> None:
    cells, moved = compact_cells(record), compact_quantities(record)
    if cells.rows:
        console.print()
        console.print(terminal_table(cells))
        console.print(cells.note, markup=False, style="dim")
    for cell in record.cells:
        if cell.remark:
            console.print(f"{cell.id}: {cell.remark}", markup=False)
    if moved.rows:
        console.print()
        console.print(terminal_table(moved))
    console.print()


def store(run: Path, file: Path, *, as_json: bool) -> list[str]:
    """Store a run as a baseline and say so; returns the cells that cannot be read.

    Raises UsageError for one without any numbers.
    """
    kept = read_snapshot(run)
    measured = [cell.id for cell in kept.cells if cell.blocks]
    if not measured:
        raise UsageError(f"{run} has no cell with numbers: nothing could be compared with it")
    with written_by("--save"):
        write_baseline(file, kept)
    if as_json:
        print(json.dumps({"saved": str(file), "cells": measured}))
    else:
        print(f"saved: {file} ({len(measured)} of {len(kept.cells)} cells have numbers)")
    return [cell.id for cell in kept.cells if cell.state == "unreadable"]


@contextmanager
def written_by(flag: str) -> Iterator[None]:
    """A file that cannot be written is given by this flag."""
    try:
        yield
    except OutputError as error:
        raise OutputError(f"{str(error).splitlines()[0]}\nGive a file you may write to with {flag}.") from None
