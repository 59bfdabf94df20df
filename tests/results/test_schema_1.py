"""A run folder that was recorded under schema 1 gives the numbers that it gave then.

schema_1/run was recorded, and schema_1/tables made of it, by the last commit of that schema (b42cebe); names of the
machine are taken out. Ends of intervals of ratios are those of the analysis as it is now: the prior of ρ has changed
since (method.md §8), which moves no estimate. Parts and times of communication are scaled to the step time of the
results, as they are now: by 1.0147, 1.0032 and 0.9991, for what lay between the steps of each cell.
"""

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest

from worldsize.analysis.study import analyse
from worldsize.report.write import write_report
from worldsize.results.columns import pack
from worldsize.results.folder import load_run

STORED = Path(__file__).parent / "schema_1"
TABLES = sorted(path.name for path in (STORED / "tables").iterdir())


def rows(path: Path) -> list[list[str | float]]:
    """The rows of a table, its heading among them."""
    return [[number(value) for value in row] for row in csv.reader(path.read_text().splitlines())]


def number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text


def alike(row: list[str | float]) -> list[Any]:
    """What a row must be: the last bits of a number may be others with another polars or numpy."""
    return [pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for value in row]


@pytest.fixture(scope="module", params=["lines", "columns"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("schema") / "s1"
    shutil.copytree(STORED / "run", run)
    if request.param == "columns":
        for cell in (run / "cells").iterdir():
            pack(cell)
    return write_report(run).parent


@pytest.mark.parametrize("table", TABLES)
def test_its_tables_are_as_they_were(report: Path, table: str) -> None:
    before = rows(STORED / "tables" / table)
    assert len(before) > 1
    assert rows(report / table) == [alike(row) for row in before]


def test_only_what_needs_marks_is_not_there(report: Path) -> None:
    found = analyse(load_run(STORED / "run"))
    assert [cell.state for cell in found.cells] == ["complete"] * 3
    assert not list(report.glob("timeline-*.svg"))
    assert list(report.glob("step-parts-*.svg"))
