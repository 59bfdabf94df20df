"""A wait that only one rank has: wherever a mean over ranks is printed, it says so, and the rank is named."""

from pathlib import Path

import pytest

from made_messages import add_messages
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.communication import communication, waits_text
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.report.comm_tables import communication_summary, communication_table
from worldsize.report.experiments.sync_ladder import timeline_table
from worldsize.report.rank_tables import rank_parts_table, ranks_of
from worldsize.report.tables import to_records
from worldsize.report.write import write_report
from worldsize.results.folder import load_run

LATE_S = 0.0204


def two(late_s: float, world_size: int = 2) -> MadeCell:
    return MadeCell(
        "all-reduce",
        world_size,
        step_s=0.5,
        shares=synchronised(SHARES, 0.2),
        comm_s=0.1 - late_s,
        rank_spread=0,
    )


def studied(folder: Path, cell: MadeCell, late_s: float) -> StudyAnalysis:
    run = make_run(folder, [MadeCell("single", 1), cell])
    add_messages(run, cell, count=1, late_s=late_s)
    return analyse(load_run(run))


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    """Rank 0 waits 20.4 ms in each step, rank 1 not at all."""
    return studied(tmp_path_factory.mktemp("late"), two(LATE_S), LATE_S)


def test_each_rank_has_its_own_wait(late: StudyAnalysis) -> None:
    found = communication(late.run.cells[late.cells[1].id])
    assert found is not None
    assert found.wait_s == pytest.approx(LATE_S / 2)
    assert found.by_rank["rank"].to_list() == [0, 1]
    assert found.by_rank["wait_s"].to_list() == pytest.approx([LATE_S, 0], abs=1e-9)
    assert found.by_rank["transfer_s"].mean() == pytest.approx(found.transfer_s)
    assert waits_text(found) == "10.2 ms (mean; rank 0: 20.4, rank 1: 0)"


def test_equal_waits_are_not_told_apart(tmp_path: Path) -> None:
    found = studied(tmp_path, two(0), 0).cells[1].communication
    assert found is not None
    assert waits_text(found) == "0 ms (mean over ranks)"


def test_of_many_ranks_the_one_that_waits_most_and_the_one_that_waits_least_are_named(tmp_path: Path) -> None:
    found = studied(tmp_path, two(LATE_S, 4), LATE_S).cells[1].communication
    assert found is not None
    assert waits_text(found) == "5.10 ms (mean; most on rank 0: 20.4, least on rank 1: 0)"


def test_the_tables_name_the_rank(late: StudyAnalysis) -> None:
    table = communication_table(late)
    row = dict(zip((column.heading for column in table.columns), table.rows[0], strict=True))
    assert row["Wait, mean over ranks (ms)"].text == "10.2"
    assert row["Longest wait (ms)"].text == "20.4 (rank 0)"
    assert row["Shortest wait (ms)"].text == "0 (rank 1)"
    record = to_records(table)[0]
    assert record["wait_s"] == pytest.approx(LATE_S / 2)
    assert (record["wait_most_rank"], record["wait_least_rank"]) == (0, 1)
    assert record["wait_most_s"] == pytest.approx(LATE_S)


def test_the_terminal_says_that_it_is_a_mean_and_which_ranks_differ(late: StudyAnalysis) -> None:
    note = communication_summary(late).remarks
    assert "Wait: mean over ranks, by rank in the report." in note
    assert "Most unlike in all-reduce 2 32: 10.2 ms (mean; rank 0: 20.4, rank 1: 0)." in note


def test_the_table_by_rank_has_the_waits(late: StudyAnalysis) -> None:
    cell = late.cells[1]
    from worldsize.analysis.groups import groups

    records = to_records(rank_parts_table(ranks_of(late, groups(late))))
    assert [record["cell"] for record in records] == [cell.id] * 2
    assert [record["wait_s"] for record in records] == pytest.approx([LATE_S, 0], abs=1e-9)


def test_the_ladder_and_the_page_say_so_too(late: StudyAnalysis) -> None:
    assert "Wait, mean over ranks (ms)" in [column.heading for column in timeline_table(late).columns]
    page = write_report(late.run.folder, late).read_text(encoding="utf-8")
    assert "20.4 (rank 0)" in page
    assert "Wait (ms)" in page, "in the table by rank"
