from pathlib import Path
from typing import Any

import pytest

from advised import steps
from made_runs import SHARES, MadeCell, make_run, synchronised
from worldsize.analysis.steps import world_steps
from worldsize.analysis.summary import step_blocks, summarise
from worldsize.results.folder import Cell, load_run
from worldsize.results.records import STEP_PARTS


def made(folder: Path, cell: MadeCell) -> Cell:
    return load_run(make_run(folder, [cell])).cells[cell.id]


def test_step_ends_with_the_slowest_rank_and_throughput_counts_all_samples(tmp_path: Path) -> None:
    cell = made(tmp_path, MadeCell("ddp", 4, 16, step_s=0.25, rank_spread=0.5))
    summary = summarise(cell)
    assert summary is not None
    assert summary.step_s.value == pytest.approx(0.25)
    assert summary.samples_per_s.value == pytest.approx(64 / 0.25)
    assert (summary.timed_steps, summary.blocks, summary.step_s.samples) == (18, 6, 6)


def test_bounds_of_throughput_are_those_of_the_step_turned_over(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, MadeCell("ddp", 2, 32, noise=0.05)))
    assert summary is not None
    assert summary.step_s.high is not None
    assert summary.samples_per_s.low == pytest.approx(64 / summary.step_s.high)


def test_parts_are_means_over_ranks_and_add_up_to_the_mean_step(tmp_path: Path) -> None:
    shares = synchronised(SHARES, exposed=0.2)
    cell = made(tmp_path, MadeCell("ddp", 2, step_s=0.4, shares=shares, rank_spread=0.5, comm_s=0.1, overlapped_s=0.02))
    summary = summarise(cell)
    assert summary is not None
    mean_step_s = 0.75 * 0.4  # one rank takes 0.4 s and the other half of it
    assert list(summary.parts_s) == list(STEP_PARTS)
    assert sum(summary.parts_s.values()) == pytest.approx(mean_step_s)
    assert summary.parts_s["exposed_sync_s"] == pytest.approx(0.2 * mean_step_s)
    assert summary.comm_s == pytest.approx(0.75 * 0.1)
    assert summary.overlapped_s == pytest.approx(0.75 * 0.02)


def test_one_worker_has_no_communication_rather_than_none_of_it(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, MadeCell("single", 1)))
    assert summary is not None
    assert (summary.comm_s, summary.overlapped_s) == (None, None)


def test_replicas_on_threads_of_one_process_count_as_workers(tmp_path: Path) -> None:
    summary = summarise(made(tmp_path, MadeCell("data-parallel", 4, 8, step_s=0.5)))
    assert summary is not None
    assert summary.samples_per_s.value == pytest.approx(64)
    assert summary.comm_s is not None


def test_warm_up_steps_do_not_count(tmp_path: Path) -> None:
    cell = made(tmp_path, MadeCell("single", 1, warmup_steps=5, blocks=2, block_steps=2))
    assert world_steps(cell)["step"].to_list() == [5, 6, 7, 8]


def test_a_step_that_a_rank_did_not_finish_is_left_out(tmp_path: Path) -> None:
    cell = made(tmp_path, MadeCell("ddp", 2))
    lines = (cell.folder / "rank1.jsonl").read_text().splitlines(keepends=True)
    # A kill in the middle of a line: the last step has no slowest rank, and the line is not read.
    (cell.folder / "rank1.jsonl").write_text("".join(lines[:-1]) + lines[-1][:20])
    assert world_steps(cell)["step"].to_list() == list(range(2, 19))


def test_blocks_keep_session_and_turn(tmp_path: Path) -> None:
    blocks = step_blocks(world_steps(made(tmp_path, MadeCell("single", 1, session=1, blocks=3))))
    assert list(blocks) == [(1, 0), (1, 1), (1, 2)]
    assert all(times.size == 3 for times in blocks.values())


@pytest.mark.parametrize("warmup_steps", [0, 2])
def test_without_a_timed_step_there_is_no_summary(tmp_path: Path, warmup_steps: int) -> None:
    cell = made(tmp_path, MadeCell("single", 1, blocks=0, warmup_steps=warmup_steps))
    assert summarise(cell) is None


@pytest.mark.parametrize("offset_s", [0, 40], ids=["the same host", "another host"])
def test_what_a_restart_within_an_epoch_took_is_in_no_step(tmp_path: Path, offset_s: int) -> None:
    """Five seconds were lost before the sixth step of a block; the clock of the new worker is another one."""
    cell = MadeCell("ddp", 2, step_s=0.05, blocks=2, block_steps=10, rank_spread=0)

    def started_again(rank: int, record: dict[str, Any]) -> None:
        if record["block"] == 1 and record["step"] >= cell.warmup_steps + cell.block_steps + 5:
            offset_ns = offset_s * rank * 10**9
            record.update(launch=1, clock_offset_ns=-offset_ns, start_ns=record["start_ns"] + 5 * 10**9 + offset_ns)

    steps(cell, started_again)(make_run(tmp_path, [cell]))
    summary = summarise(load_run(tmp_path).cells[cell.id])
    assert summary is not None
    assert summary.step_s.value == pytest.approx(0.05)
