"""What stands in two tables is one number: of one epoch, of the same steps, beside a limit of its own kind."""

from pathlib import Path
from typing import Any

import pytest

from made_messages import add_link, add_messages
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.utilisation import utilisations
from worldsize.report.comm_tables import communication_table, link_peak
from worldsize.report.result_tables import results_table
from worldsize.report.tables import to_records
from worldsize.results.folder import load_run


def exchanging(strategy: str, step_s: float, blocks: int) -> MadeCell:
    """A quarter of the step is exposed communication, and nothing is hidden."""
    return MadeCell(
        strategy,
        2,
        step_s=step_s,
        shares=synchronised(SHARES, 0.25),
        comm_s=0.25 * step_s,
        noise=0.05,
        blocks=blocks,
        block_steps=3,
        rank_spread=0.0,
    )


@pytest.fixture
def analysis(tmp_path: Path) -> StudyAnalysis:
    """The machine becomes slower by half; all-reduce ended before that, so its column is not what its steps took."""
    cells = [
        MadeCell("single", 1, step_s=0.5, noise=0.05, blocks=12, rank_spread=0.0),
        exchanging("ddp", 0.6, 12),
        exchanging("all-reduce", 0.8, 5),
        exchanging("gather-scatter", 0.9, 12),
        exchanging("data-parallel", 0.7, 12),
    ]
    # 1,000 samples are 15.6 steps of 64: an epoch that is rounded is another one.
    make_run(tmp_path, cells, drift=lambda turn: 1 + 0.5 * (turn > 6), train_samples=1000)
    for cell in cells[1:]:
        add_messages(tmp_path, cell, count=3)
    add_link(tmp_path, 2)
    return analyse(load_run(tmp_path))


def test_an_epoch_is_the_same_in_the_split_and_in_the_utilisation(analysis: StudyAnalysis) -> None:
    splits = {split.cell_id: split for split in analysis.epoch_splits}
    found = utilisations(analysis.cells, analysis.epoch_splits, analysis.record.training[1].train_samples)
    assert {each.cell.id for each in found} == splits.keys()
    for each in found:
        split = splits[each.cell.id]
        assert each.cell.summary is not None
        assert each.steps_per_epoch * each.cell.summary.step_s.value == pytest.approx(split.epoch_s)
        if split.inferred_comm_s > 0:
            assert each.inferred_s == pytest.approx(split.inferred_comm_s)


def test_transfer_is_never_longer_than_all_communication(analysis: StudyAnalysis) -> None:
    splits = {split.cell_id: split for split in analysis.epoch_splits}
    for each in utilisations(analysis.cells, analysis.epoch_splits, analysis.record.training[1].train_samples):
        whole_s = splits[each.cell.id].measured_comm_s
        assert whole_s is not None
        assert each.transfer_s is not None
        # Nobody waits in these messages: transfer is all of it.
        assert each.transfer_s == pytest.approx(whole_s, rel=1e-6)


def test_exposed_communication_is_that_of_all_timed_steps_in_both_tables(analysis: StudyAnalysis) -> None:
    """Also where no block was paired."""
    shares: dict[Any, dict[str, Any]] = {row["cell"]: row for row in to_records(results_table(analysis))}
    rows: list[dict[str, Any]] = [dict(row) for row in to_records(communication_table(analysis))]
    assert len(rows) == 4
    for row in rows:
        cell = next(cell for cell in analysis.cells if cell.id == row["cell"])
        assert cell.summary is not None
        mean_step_s = sum(cell.summary.parts_s.values())
        assert row["exposed_timeline_s"] == pytest.approx(shares[row["cell"]]["exposed_share"] * mean_step_s)
        assert row["exposed_timeline_s_low"] < row["exposed_timeline_s"] < row["exposed_timeline_s_high"]


def test_a_rate_stands_beside_the_peak_of_its_own_kind_or_beside_none(analysis: StudyAnalysis) -> None:
    """The benchmark knows all-reduce alone: neither the rate through a root nor copies within a process."""
    peaks = {cell.strategy: link_peak(analysis, cell) for cell in analysis.cells if cell.world_size > 1}
    assert peaks["ddp"] == peaks["all-reduce"] == pytest.approx(1e9)
    assert peaks["gather-scatter"] is None
    assert peaks["data-parallel"] is None
