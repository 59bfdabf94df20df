"""A report of many ranks stays a page that people read: tens of rows and a sentence, all of them in the CSV."""

import csv

import pytest

from large_folder import make_large_run
from large_samples import LargeRun
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.experiments.sync_ladder import MAX_RANKS, standing_out
from worldsize.report.fact_tables import provenance_table
from worldsize.report.tables import Column, Table, integer, number, shown, text, to_csv, to_markdown
from worldsize.report.write import write_report
from worldsize.results.folder import load_run

MADE = LargeRun(worlds=(1, 4, 64), steps=100)
MAX_BYTES = 5_000_000


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    analysis = analyse(load_run(make_large_run(tmp_path_factory.mktemp("made") / "run", MADE)))
    write_report(analysis.run.folder, analysis)
    return analysis


def report(analysis: StudyAnalysis, name: str) -> str:
    return (analysis.run.folder / "report" / name).read_text(encoding="utf-8")


def test_the_page_stays_small(analysis: StudyAnalysis) -> None:
    page = report(analysis, "index.html")
    assert len(page.encode()) < MAX_BYTES / 4
    assert page.count("<tr>") < 200


def test_ranks_that_stand_out_are_shown_and_all_are_in_the_csv(analysis: StudyAnalysis) -> None:
    rows = list(csv.DictReader(report(analysis, "d-ranks.csv").splitlines()))
    assert [row["rank"] for row in rows if row["world_size"] == "64"] == [str(rank) for rank in range(64)]
    for seen in (report(analysis, "d-ranks.md"), report(analysis, "index.html")):
        assert f"of {1 + 4 + 64} rows; the CSV has all." in seen
        assert f"Of more than {MAX_RANKS} ranks, rank 0 and those" in seen
    table = [line.split("|")[4].strip() for line in report(analysis, "d-ranks.md").splitlines() if "(3) ddp" in line]
    ranks = [int(rank) for rank in table]
    assert ranks[:4] == [0, 1, 2, 3], "of a few ranks all"
    largest = max((row for row in rows if row["world_size"] == "64"), key=lambda row: float(row["mean_loss"]))
    assert {0, int(largest["rank"])} <= set(ranks[4:])
    assert len(ranks[4:]) <= MAX_RANKS


def test_a_thousand_cores_are_a_range(analysis: StudyAnalysis) -> None:
    rows = {row[0].text: row[1].text for row in provenance_table(analysis).rows}
    assert rows["Allowed cores"] == "0–1023"
    some = analysis.record.provenance.host.model_copy(update={"allowed_cores": (0, 1, 4, 5, 6, 9)})
    analysis.record.provenance.host = some
    assert {row[0].text: row[1].text for row in provenance_table(analysis).rows}["Allowed cores"] == "0, 1, 4–6, 9"


def test_people_see_the_chosen_rows_and_programs_all() -> None:
    columns = (Column("Rank", ("rank",)), Column("Step", ("step_s",)))
    rows = tuple((integer(rank), number(float(rank))) for rank in range(1000))
    table = Table("x", "X", columns, rows, "A note.", chosen=(0, 999))
    assert [row[0].text for row in shown(table).rows] == ["0", "999"]
    assert "A note. 2 of 1,000 rows; the CSV has all." in to_markdown(table)
    assert to_csv(table).count("\n") == 1001


def test_all_of_a_few_rows_stand_out_and_of_many_the_extremes() -> None:
    few = [(integer(rank), number(0.5 * rank)) for rank in range(MAX_RANKS)]
    assert standing_out(few) == list(range(MAX_RANKS))
    loss = [1.0 + (rank == 30) - (rank == 40) for rank in range(100)]
    many = [(integer(rank), text("the same"), number(loss[rank]), number(None), number(0.5)) for rank in range(100)]
    assert standing_out(many) == [0, 30, 40]
