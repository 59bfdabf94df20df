"""The tables of a comparison: 80 columns, the verdict first, users' text is text."""

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from made_pairs import DDP, change_study, compared, make_pair, make_sides, slowed
from made_runs import MadeCell, make_run, usual_cells
from worldsize.cli.tables import TerminalTable
from worldsize.report.compare_tables import (
    cells_table,
    changes_table,
    compact_cells,
    compact_quantities,
    compare_markdown,
    lone_lines,
    quantities_table,
)
from worldsize.report.tables import Table, to_records
from worldsize.results.records import StudyRecord


def drawn(table: Table, width: int = 80) -> list[str]:
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        console.print(TerminalTable(table))
    return capture.get().splitlines()


def test_long_names_and_wide_numbers_fit_80_columns_without_a_break(tmp_path: Path) -> None:
    cells = [replace(cell, batch_size=131072) for cell in usual_cells(noise=0.03)]
    long = [MadeCell("my.own.package.strategies:VeryLongNameOfAStrategy", 2, 131072, noise=0.03)]
    a = make_run(tmp_path / "a", cells + long)
    b = make_run(tmp_path / "b", slowed(cells, {cell.id: 123.4 for cell in cells}) + long, seed=1)
    record = compared(a, b)
    tables = compact_cells(record), compact_quantities(record)
    assert len(tables[1].rows) > 6
    for table in tables:
        lines = drawn(table)
        assert max(len(line) for line in lines) <= 80
        assert len(lines) == 3 + len(table.rows), "no entry is broken into lines"
    [cut] = [line for line in drawn(tables[0]) if line.startswith("my_")]
    name = cut.split()[0]
    assert "…" in name
    assert name.endswith("-w2-b131072"), "cells differ at either end of their names"


def test_what_did_not_move_is_left_out_of_the_short_table_only(tmp_path: Path) -> None:
    record = compared(*make_sides(tmp_path, {DDP: 1.1}), judge_by="relative")
    short, full = to_records(compact_quantities(record)), to_records(quantities_table(record))
    assert [(row["cell"], row["what"]) for row in short] == [(DDP, "exposed"), (DDP, "data wait"), (DDP, "compute")]
    assert len(full) == sum(len(cell.quantities) for cell in record.cells)
    assert {row["difference"] for row in full} == {"larger", "smaller", "indistinguishable", "same", None}
    assert compact_quantities(record).title == "Other significant differences"
    named = [row["what"] for row in full if "speed-up" in str(row["what"])]
    assert set(named) == {"scaled speed-up over single-w1-b32"}, "a speed-up names its baseline"


def test_raw_values_of_the_table_are_those_of_the_record(tmp_path: Path) -> None:
    record = compared(*make_pair(tmp_path, {DDP: 1.1}, noise=0.01))
    [row] = [row for row in to_records(cells_table(record)) if row["cell"] == DDP]
    [cell] = [cell for cell in record.cells if cell.id == DDP]
    assert cell.plain is not None
    assert cell.relative is not None
    assert (row["step_ratio"], row["step_ratio_low"]) == (cell.plain.value, cell.plain.low)
    assert (row["relative_ratio"], row["relative_ratio_high"]) == (cell.relative.value, cell.relative.high)
    assert row["throughput_ratio_low"] == pytest.approx(1 / (cell.plain.high or 0))
    assert row["judged_by"] == "relative to single-w1-b32"
    assert row["verdict"] == "not known"
    assert compact_quantities(record).title == "What else differs, with too few runs to call it a change"


def test_without_a_baseline_cell_there_is_no_column_for_it(tmp_path: Path) -> None:
    a, b = (make_run(tmp_path / name, [MadeCell("ddp", 2)]) for name in "ab")
    headings = [column.heading for column in compact_cells(compared(a, b)).columns]
    assert headings == ["Cell", "Step time", "Verdict"]


def test_markdown_has_the_verdict_first_and_users_text_is_text(tmp_path: Path) -> None:
    evil = MadeCell("<script>alert('x')</script>|:Mine", 2)
    a, b = make_run(tmp_path / "a", [MadeCell("single", 1), evil]), make_run(tmp_path / "b", [MadeCell("single", 1)])

    def change(study: StudyRecord) -> None:
        study.name = "<b>new</b>"
        study.provenance.environment = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "<img src=x>|"}

    change_study(b, change)
    markdown = compare_markdown(compared(a, b, fail_above=0.05))
    lines = [line for line in markdown.splitlines() if line]
    assert lines[0] == "## worldsize: FAILED: the gate at 5 %"
    assert lines[1].startswith("- fails: ")
    assert lines[2].startswith("- not known: less than two runs a side")
    assert lines[3].startswith("B against A, step times of 1 cell")
    for tag in ("<script", "<img", "<b>"):
        assert tag not in markdown
    assert r"&lt;img src=x>\|" in markdown
    assert "environment: NCCL_DEBUG" in markdown


def test_same_runs_say_so_in_place_of_an_empty_table(tmp_path: Path) -> None:
    a, _ = make_pair(tmp_path, {}, blocks=2)
    record = compared(a, a)
    assert not changes_table(record).rows
    assert "Provenance and settings are the same." in compare_markdown(record)
    assert lone_lines(record) == []
