"""A run in hand: what it shows is what the report shows."""

from pathlib import Path

import altair as alt
import polars as pl
import pytest

import worldsize
from made_runs import make_run, usual_cells
from worldsize.api.options import StudyOptions
from worldsize.api.run import frame
from worldsize.report.tables import Column, Table
from worldsize.report.write import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    make_run(folder, usual_cells(blocks=6))
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> worldsize.Run:
    return worldsize.load_run(folder)


def test_its_verdict_is_that_of_the_report(run: worldsize.Run, folder: Path) -> None:
    write_report(folder)
    assert run.verdict
    assert run.verdict in (folder / "report" / "summary.md").read_text().replace("\\", "")
    assert repr(run).startswith(run.verdict)
    assert str(folder) in repr(run)


def test_its_results_are_the_raw_numbers_of_the_table(run: worldsize.Run, folder: Path) -> None:
    written = pl.read_csv(folder / "report" / "results.csv")
    assert run.results.columns == written.columns
    assert run.results["step_s"].to_list() == written["step_s"].to_list()
    assert run.tables["results"].equals(run.results)


def test_its_samples_are_the_timed_steps(run: worldsize.Run) -> None:
    assert run.samples.height == sum(cell.steps.filter("timed").height for cell in run.cells.values())
    assert {"cell", "rank", "step_s", "exposed_sync_s"} <= {*run.samples.columns}


def test_a_cell_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    make_run(tmp_path, usual_cells(blocks=3))
    broken = next((tmp_path / "cells").glob("ddp*")) / "rank1.jsonl"
    broken.unlink()
    broken.mkdir()
    run = worldsize.load_run(tmp_path)
    assert run.verdict
    assert 0 < run.samples["cell"].n_unique() < len(run.cells)


def test_a_table_without_rows_has_its_columns() -> None:
    table = Table("t", "T", (Column("Cell", ("cell",)), Column("Step", ("step_s",))), ())
    assert frame(table).columns == ["cell", "step_s"]


def test_its_charts_are_altair_objects(run: worldsize.Run) -> None:
    assert run.charts
    for chart in run.charts.values():
        assert isinstance(chart, alt.TopLevelMixin)
        assert chart.to_dict()["$schema"]


def test_a_notebook_shows_verdict_results_and_first_chart(run: worldsize.Run) -> None:
    page = run._repr_html_()
    assert page.index("<b>") < page.index("<table>") < page.index("<svg")
    assert "<script" not in page
    assert page.count("<tr>") == 1 + len(run.cells)


def test_a_preset_is_given_first(tmp_path: Path) -> None:
    with pytest.raises(worldsize.UsageError, match=r"Give a preset first, as in .*; known: batch-sweep, ddp-l"):
        worldsize.study(experiment="dp-scaling", out=tmp_path / "run")
    with pytest.raises(worldsize.UsageError, match="unknown preset 'dp-scalling'; known: batch-sweep, "):
        worldsize.study("dp-scalling", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_preset_with_what_lies_over_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    over: StudyOptions = {"data": "digits", "world_sizes": "1,2", "batch_sizes": 4, "steps": 2, "threads_per_worker": 1}
    run = worldsize.study("dp-scaling", out=tmp_path / "run", **over)
    assert run.study.asked.experiment == "dp-scaling"
    assert run.study.asked.world_sizes == (1, 2)
    assert {cell.record.batch_size for cell in run.cells.values()} == {4}
    assert run.page.exists()
    out, err = capfd.readouterr()
    assert not out
    assert "starting" in err
    assert "<table>" in run._repr_html_()
