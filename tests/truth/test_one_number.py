"""What stands in two tables is one number: of one epoch, of the same steps, beside a limit of its own kind."""

from pathlib import Path

import pytest

from made_messages import add_link, add_messages
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.assumptions import assumptions
from worldsize.analysis.groups import groups
from worldsize.analysis.numbers import ABSENT
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.utilisation import utilisations
from worldsize.report.comm_tables import communication_summary, communication_table, link_peak
from worldsize.report.experiments.scaling import utilisation_table
from worldsize.report.fact_tables import wire_table
from worldsize.report.rank_tables import rank_parts_table, ranks_of
from worldsize.report.result_tables import compact_table, parts_table, results_table
from worldsize.report.tables import Table
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


def printed(table: Table, heading: str) -> dict[str, float]:
    """What a person reads under a heading, by the first column."""
    [place] = [place for place, column in enumerate(table.columns) if column.heading == heading]
    texts = {row[0].text: row[place].text for row in table.rows}
    return {name: float(text.partition(" ")[0].replace(",", "")) for name, text in texts.items() if text != ABSENT}


def test_exposed_communication_over_the_step_is_the_printed_share_in_all_tables(analysis: StudyAnalysis) -> None:
    """By a calculator, also of the cell that ended early, and where no block was paired."""
    results, communication, parts = results_table(analysis), communication_table(analysis), parts_table(analysis)
    shares, steps = printed(results, "Exposed communication (%)"), printed(results, "Step time (ms)")
    assert shares == dict.fromkeys(shares, 25.0)
    assert len(shares) == 4
    for table, step, heading in (
        (communication, "Step (ms)", "Exposed, timeline (ms)"),
        (communication, "Step (ms)", "Transfer (ms)"),
        (parts, "Mean step (ms)", "Exposed communication (ms)"),
        (parts, "Mean step (ms)", "All communication (ms)"),
    ):
        whole, exposed = printed(table, step), printed(table, heading)
        assert exposed.keys() == shares.keys()
        for cell in exposed:
            assert whole[cell] == steps[cell], (heading, cell)
            assert 100 * exposed[cell] / whole[cell] == pytest.approx(25, rel=0.01), (heading, cell)


def test_the_table_by_rank_has_the_step_and_the_transfer_of_the_others(analysis: StudyAnalysis) -> None:
    """All ranks are alike here, so each has the mean."""
    by_rank = rank_parts_table(ranks_of(analysis, groups(analysis)))
    steps, transfers = printed(by_rank, "Mean step (ms)"), printed(by_rank, "Transfer (ms)")
    assert len(steps) == 3, "data-parallel is one process"
    for cell in steps:
        assert steps[cell] == printed(results_table(analysis), "Step time (ms)")[cell]
        assert transfers[cell] == printed(communication_table(analysis), "Transfer (ms)")[cell]


def test_so_it_is_in_the_terminal(analysis: StudyAnalysis) -> None:
    results = compact_table(analysis, width=120)
    assert "Cells that ended early are scaled to all blocks" in str(results.note)
    shares, steps = printed(results, "Sync %"), printed(results, "ms/step")
    exposed = printed(communication_summary(analysis), "exposed")
    assert {name.split()[0] for name in exposed} == shares.keys()
    for name, each in exposed.items():
        strategy = name.split()[0]
        assert 100 * each / steps[strategy] == pytest.approx(shares[strategy], rel=0.01)


def test_an_epoch_moves_as_many_bytes_in_all_tables(analysis: StudyAnalysis) -> None:
    """1,000 samples in steps of 64: not 15 steps, but 15.6."""
    wire, utilisation = wire_table(analysis), utilisation_table(analysis, "B")
    told = {each.mistake: each for each in assumptions(analysis.record, analysis.cells, analysis.scaling)}
    volume = told["One synchronisation counted for a whole epoch"]
    epoch_bytes = printed(utilisation, "Bytes per epoch (GB)")
    assert printed(wire, "Busiest rank, per epoch (GB)") == epoch_bytes
    for table in (wire, utilisation):
        assert printed(table, "Steps per epoch") == dict.fromkeys(epoch_bytes, 15.6)
    assert volume.ours == f"{epoch_bytes[volume.where]} GB per epoch"
    assert "15.6 steps" in volume.why
    assert told["Steps per epoch not divided by N"].ours == "15.6 steps"
    assert told["Steps per epoch not divided by N"].other == "31.2 steps"


def test_a_cell_that_was_interrupted_after_one_block_is_printed_at_its_level(tmp_path: Path) -> None:
    """The machine is slower by half in the second block, which one worker has alone; in the first both took 100 ms."""
    cells = [
        MadeCell("single", 1, step_s=0.1, blocks=2),
        MadeCell("ddp", 2, step_s=0.1, blocks=1, state="interrupted", rank_spread=0),
    ]
    made = analyse(load_run(make_run(tmp_path, cells, drift=lambda turn: 1 + 0.5 * (turn >= 1))))
    results = results_table(made)
    assert printed(results, "Step time (ms)") == {"single-w1-b32": 125.0, "ddp-w2-b32": 125.0}
    assert printed(results, "Throughput (samples/s)") == {"single-w1-b32": 256.0, "ddp-w2-b32": 512.0}
    [row] = [row for row in made.scaling if row.cell.world_size == 2]
    assert row.speedup is not None
    assert row.speedup.estimate.value == pytest.approx(2)
    summary = made.cells[1].summary
    assert summary is not None
    assert (summary.step_s.low, summary.step_s.high) == pytest.approx((0.125, 0.125))


def test_a_rate_stands_beside_the_peak_of_its_own_kind_or_beside_none(analysis: StudyAnalysis) -> None:
    """The benchmark knows all-reduce alone: neither the rate through a root nor copies within a process."""
    peaks = {cell.strategy: link_peak(analysis, cell) for cell in analysis.cells if cell.world_size > 1}
    assert peaks["ddp"] == peaks["all-reduce"] == pytest.approx(1e9)
    assert peaks["gather-scatter"] is None
    assert peaks["data-parallel"] is None
