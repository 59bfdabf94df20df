"""Parts of a step by rank, and cells by the batch that they keep."""

from pathlib import Path

import pytest

from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.groups import groups
from worldsize.analysis.ranks import MAX_ROWS, rank_parts
from worldsize.analysis.study import analyse
from worldsize.results.folder import load_run, write_study


def test_each_rank_has_the_means_of_its_own_steps(tmp_path: Path) -> None:
    cell = MadeCell("ddp", 3, step_s=0.6, shares=synchronised(SHARES, 0.1), comm_s=0.06)
    found = rank_parts(load_run(make_run(tmp_path, [cell])).cells[cell.id])
    assert found is not None
    assert (found.of, found.chosen) == (3, False)
    # Of a made cell the last rank is the slowest; the fastest is 10 % sooner.
    assert [rank.step_s for rank in found.ranks] == pytest.approx([0.54, 0.57, 0.6])
    assert found.ranks[2].parts_s["exposed_sync_s"] == pytest.approx(0.06)
    assert [rank.role for rank in found.ranks] == ["works least", "median", "works longest"]


def test_of_many_ranks_some_are_shown_the_first_the_extremes_and_the_median_among_them(tmp_path: Path) -> None:
    cell = MadeCell("ddp", 41, blocks=1, block_steps=1, warmup_steps=0)
    found = rank_parts(load_run(make_run(tmp_path, [cell])).cells[cell.id])
    assert found is not None
    assert found.chosen
    assert len(found.ranks) <= MAX_ROWS
    assert {rank.rank: rank.role for rank in found.ranks if rank.role} == {
        0: "works least",
        20: "median",
        40: "works longest",
    }


def test_one_process_has_no_ranks_to_compare(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path, [MadeCell("single", 1), MadeCell("data-parallel", 2)]))
    assert [rank_parts(cell) for cell in run.cells.values()] == [None, None]


def test_cells_are_grouped_by_the_batch_that_their_study_keeps(tmp_path: Path) -> None:
    cells = [MadeCell("single", 1, 32), MadeCell("single", 1, 64, step_s=0.9), MadeCell("ddp", 2, 32, step_s=0.5)]
    run = make_run(tmp_path, cells)
    weak = groups(analyse(load_run(run)))
    assert [(group.name, group.id, len(group.cells)) for group in weak] == [("b = 32", "b32", 2), ("b = 64", "b64", 1)]
    assert weak[0].world_sizes == [2]
    record = load_run(run).study
    record.settings = record.asked.model_copy(update={"global_batch": 64})
    write_study(run, record)
    strong = groups(analyse(load_run(run)))
    assert [(group.name, len(group.cells)) for group in strong] == [("B = 64", 2), ("B = 32", 1)]
