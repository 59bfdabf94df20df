"""Throughput is samples ÷ elapsed time of the world, whatever its ranks and its steps do in between (method.md §8)."""

from pathlib import Path

import numpy as np
import pytest

from made_runs import SHARES, MadeCell, make_run, usual_cells
from worldsize.analysis.study import analyse
from worldsize.analysis.summary import summarise
from worldsize.config import CellSettings
from worldsize.results.folder import Cell, load_run
from worldsize.results.records import CellRecord, Placement
from worldsize.results.samples import TakenApartStep

BLOCKS, STEPS, COMPUTE_S = 5, 20, 0.1


def jittery(folder: Path, ranks: int, jitter: float) -> tuple[Cell, float]:
    """A cell whose ranks are late by chance after the last collective of each step; and its elapsed time ÷ steps.

    Nobody's next collective begins before the last rank has come.
    """
    generator = np.random.default_rng(ranks)
    lines: list[list[str]] = [[] for _ in range(ranks)]
    elapsed_s = 0.0
    for block in range(BLOCKS):
        ends_s = np.full(ranks, 1000.0 * block)
        for step in range(STEPS + 1):  # the first one leads into the block
            begins_s, together_s = ends_s, ends_s.max() + COMPUTE_S / 2
            ends_s = together_s + COMPUTE_S / 2 * np.exp(jitter * generator.standard_normal(ranks))
            elapsed_s += ends_s.max() - begins_s.max() if step else 0
            for rank in range(ranks):
                took_s = ends_s[rank] - begins_s[rank]
                record = TakenApartStep(
                    session=0,
                    block=block,
                    step=block * (STEPS + 1) + step,
                    epoch=0,
                    timed=step > 0,
                    samples=4,
                    loss=1.0,
                    start_ns=round(1e9 * begins_s[rank]),
                    step_s=took_s,
                    data_wait_s=0.0,
                    copy_s=0.0,
                    forward_s=0.0,
                    backward_s=COMPUTE_S / 2,
                    exposed_sync_s=took_s - COMPUTE_S / 2,
                    optimizer_s=0.0,
                    other_s=0.0,
                    comm_s=0.0,
                    overlapped_s=0.0,
                )
                lines[rank].append(record.model_dump_json() + "\n")
    folder.mkdir()
    for rank in range(ranks):
        (folder / f"rank{rank}.jsonl").write_text("".join(lines[rank]))
    settings = CellSettings(strategy="ddp", world_size=ranks, batch_size=4)
    cores = tuple((rank,) for rank in range(ranks))
    where = Placement(
        processes=ranks, threads_per_worker=1, cores=cores, oversubscribed=False, device="cpu", backend="gloo"
    )
    return Cell(folder, CellRecord.of(settings, id="cell", placement=where)), elapsed_s / (BLOCKS * STEPS)


@pytest.mark.parametrize("ranks", [1, 2, 8, 64])
def test_a_rank_that_is_late_by_chance_counts_once(tmp_path: Path, ranks: int) -> None:
    """Not in its own step, and once more in the next wait of its peers."""
    cell, true_s = jittery(tmp_path / "cell", ranks, jitter=0.06)
    summary = summarise(cell)
    assert summary is not None
    assert summary.step_s.value == pytest.approx(true_s, rel=1e-6)


@pytest.mark.parametrize(("part", "named"), [("data_wait_s", "waiting for data"), ("optimizer_s", "the optimizer")])
def test_a_stall_every_few_steps_is_in_the_throughput_and_is_named(tmp_path: Path, part: str, named: str) -> None:
    """Three steps of 100 ms and one of 500 ms are 200 ms a step."""
    run = make_run(tmp_path / "run", [MadeCell("single", 1, step_s=0.1, blocks=6, block_steps=8)])
    stall(run / "cells" / "single-w1-b32" / "rank0.jsonl", part)
    analysis = analyse(load_run(run))
    summary = analysis.cells[0].summary
    assert summary is not None
    assert summary.step_s.value == pytest.approx(0.2)
    assert summary.samples_per_s.value == pytest.approx(32 / 0.2)
    assert summary.typical_step_s == pytest.approx(0.1)
    assert sum(summary.parts_s.values()) == pytest.approx(0.2)
    [told] = [warning.message for _, warning in analysis.warnings if warning.code == "uneven-steps"]
    assert "200 ms" in told
    assert "100 ms" in told
    assert "every 4 steps one took 500 ms" in told
    assert named in told


def stall(path: Path, part: str) -> None:
    """Make each fourth step of a file 400 ms longer, and let those after it in its turn begin later."""
    records = [TakenApartStep.model_validate_json(line) for line in path.read_text().splitlines()]
    late_s: dict[int, float] = {}
    for record in records:
        record.start_ns += round(1e9 * late_s.get(record.block, 0.0))
        if record.timed and record.step % 4 == 3:
            setattr(record, part, getattr(record, part) + 0.4)
            record.step_s += 0.4
            late_s[record.block] = late_s.get(record.block, 0.0) + 0.4
    path.write_text("".join(record.model_dump_json() + "\n" for record in records))


def test_steps_that_are_alike_are_not_warned_about(tmp_path: Path) -> None:
    analysis = analyse(load_run(make_run(tmp_path, usual_cells(noise=0.03))))
    assert not [warning for _, warning in analysis.warnings if warning.code == "uneven-steps"]


def test_each_printed_ratio_is_that_of_the_printed_times(tmp_path: Path) -> None:
    """Also where the machine drifts, and cells end early."""
    cells = [
        MadeCell("single", 1, step_s=0.5, noise=0.05, blocks=12),
        MadeCell("ddp", 2, step_s=0.6, noise=0.05, blocks=12),
        MadeCell("all-reduce", 2, step_s=0.8, noise=0.05, blocks=5, shares=SHARES),
    ]
    analysis = analyse(load_run(make_run(tmp_path, cells, drift=lambda turn: 1 + 0.5 * (turn > 6))))
    baseline = analysis.cells[0].summary
    assert baseline is not None
    for row in analysis.scaling:
        assert row.cell.summary is not None
        assert row.speedup is not None
        rates = row.cell.summary.samples_per_s.value / baseline.samples_per_s.value
        assert row.speedup.estimate.value == pytest.approx(rates, rel=1e-9)
    early = analysis.cells[2].summary
    assert early is not None
    assert early.step_s.value / baseline.step_s.value == pytest.approx(1.6, rel=0.1), "not that of the quick half alone"
    for split in analysis.epoch_splits:
        epoch_s = analysis.record.training[1].train_samples / 32 * baseline.step_s.value
        assert split.inferred_compute_s == pytest.approx(epoch_s / 2)
        assert split.inferred_compute_s + split.inferred_comm_s == pytest.approx(split.epoch_s)
