"""The knee, the largest batch, and why a sweep ended (method.md §9)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from made_runs import MadeCell, make_run
from worldsize.analysis.cells import side_by_side
from worldsize.analysis.levels import IN_TURN_BLOCK
from worldsize.analysis.statistics import Blocks
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.sweep import BatchSweep, batch_sweeps, knee, sweep_text, swept_ratio, top_sizes
from worldsize.report.narrow_tables import share_of_best
from worldsize.results.folder import load_run
from worldsize.results.records import ErrorRecord

MEMORY = ErrorRecord(kind="OutOfMemory", message="can't allocate memory", rank=0)


def analysed(folder: Path, *cells: MadeCell) -> StudyAnalysis:
    return analyse(load_run(make_run(folder, cells)))


def sweep_of(folder: Path, *cells: MadeCell, asked: int | None = None, samples: int = 1536) -> BatchSweep:
    [found] = batch_sweeps(analysed(folder, *cells).cells, samples, asked)
    return found


def cell(batch_size: int, rate: float) -> MadeCell:
    """One worker that reaches so many samples/s."""
    return MadeCell("single", 1, batch_size, step_s=batch_size / rate)


def test_the_knee_is_the_smallest_batch_within_five_percent_of_the_best(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 50), cell(32, 94), cell(128, 95.5), cell(512, 100))
    assert found.knee == 128, "32 has 94 % of the best, 128 has 95.5 %"


def test_the_largest_batch_may_be_slower_than_the_best(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 100), cell(32, 90))
    assert (found.knee, found.largest) == (8, 32)


def test_memory_ends_it_where_a_batch_did_not_fit(tmp_path: Path) -> None:
    found = sweep_of(tmp_path, cell(8, 50), cell(32, 60), MadeCell("single", 1, 128, state="failed", error=MEMORY))
    assert (found.ended_by, found.largest, found.too_large) == ("memory", 32, 128)


def test_without_it_the_data_end_it_or_the_wish(tmp_path: Path) -> None:
    assert sweep_of(tmp_path / "a", cell(8, 50)).ended_by == "data"
    assert sweep_of(tmp_path / "b", cell(8, 50), asked=8).ended_by == "asked"


def test_another_failure_is_neither(tmp_path: Path) -> None:
    error = ErrorRecord(kind="ValueError", message="no", rank=0)
    found = sweep_of(tmp_path, cell(8, 50), MadeCell("single", 1, 32, state="failed", error=error))
    assert (found.ended_by, found.largest, found.too_large) == ("failure", 8, None)
    assert found.rows[1].fits is None


def test_the_time_of_an_epoch_is_without_waiting_for_data(tmp_path: Path) -> None:
    """1536 samples in batches of 32 are 48 steps of 0.5 s, of which 2 % wait for data."""
    found = sweep_of(tmp_path, MadeCell("single", 1, 32, step_s=0.5))
    assert found.rows[0].epoch_s == pytest.approx(48 * 0.5 * 0.98)


def test_two_strategies_are_two_sweeps(tmp_path: Path) -> None:
    cells = analysed(tmp_path, cell(8, 50), MadeCell("ddp", 2, 8), MadeCell("ddp", 2, 32)).cells
    assert [(s.strategy, s.world_size, len(s.rows)) for s in batch_sweeps(cells, 1536, None)] == [
        ("single", 1, 1),
        ("ddp", 2, 2),
    ]


def test_the_interval_holds_the_true_knee_and_says_when_it_is_sure(tmp_path: Path) -> None:
    """Of 32 the true rate is 94.5 % of the best, of 128 it is 99 %: the knee is 128, and 8 is far from it.

    The machine drifts over the blocks by a half, and each block varies by 2 %.
    """
    true = {8: 50.0, 32: 94.5, 128: 99.0, 512: 100.0}
    cells = analysed(tmp_path, *(cell(b, rate) for b, rate in true.items())).cells
    draw = np.random.default_rng(3)
    held, named = 0, 0
    for _ in range(60):
        again = [
            replace(
                each,
                blocks={
                    (0, IN_TURN_BLOCK + k): np.array(
                        [each.batch_size / true[each.batch_size] * (1 + k / 12) * np.exp(draw.normal(0, 0.02))]
                    )
                    for k in range(6)
                },
            )
            for each in cells
        ]
        found = knee(again)
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        assert 8 < found.low <= found.batch_size <= found.high
        held += found.low <= 128 <= found.high
        named += found.batch_size == 128
    assert held >= 56, "95 % of 60, less two standard deviations"
    assert named < 60, "the point alone is wrong at times"


def swept_later(folder: Path, true: dict[int, float]) -> BatchSweep:
    """A sweep whose machine is half as fast when the top sizes are timed again in turn."""
    trials = analysed(folder, *(cell(b, rate) for b, rate in true.items())).cells
    later: dict[int, Blocks] = {
        b: {(0, IN_TURN_BLOCK + k): np.full(3, 2 * b / true[b]) for k in range(24)} for b in top_sizes(true)
    }
    cells = [replace(each, blocks={**each.blocks, **later.get(each.batch_size, {})}) for each in trials]
    [found] = batch_sweeps(side_by_side(cells, trials=True), 1536, None)
    return found


def test_the_best_that_is_named_is_the_one_that_the_knee_was_measured_by(tmp_path: Path) -> None:
    """b = 2048 was not timed in turn, and has the rate of its trial: nobody may call it the best."""
    true = {8: 10.0, 32: 90.0, 128: 92.0, 512: 94.0, 1024: 100.0, 2048: 99.5}
    found = swept_later(tmp_path, true)
    rates = {row.cell.batch_size: row.cell.summary.samples_per_s.value for row in found.rows if row.cell.summary}
    assert rates[2048] > 1.3 * rates[1024]
    assert (found.knee, found.best, found.in_turn) == (1024, 1024, True)
    text, rate = sweep_text(found), f"{rates[1024]:.1f}"
    assert f"The knee is b = 1,024 (timed in turn; the 95 % interval includes no other size) with {rate} " in text
    assert f"the best, {rate}, is at b = 1,024." in text
    assert found.shares == pytest.approx({b: rate / 100 for b, rate in true.items()}, rel=1e-6)
    assert [share_of_best(row, found) for row in found.rows] == list(found.shares.values())


def test_a_knee_that_was_timed_once_says_how_it_compares(tmp_path: Path) -> None:
    """512 is the knee by the trials; those timed in turn were timed when the machine was slower."""
    found = swept_later(tmp_path, {8: 10.0, 32: 90.0, 128: 92.0, 512: 96.0, 2048: 100.0})
    assert (found.knee, found.best) == (512, 2048)
    assert (
        "is at b = 2,048 (timed later as well: by the trials of both the knee has 96.0 % of its samples/s)."
        in sweep_text(found)
    )


def test_one_block_of_a_size_gives_no_interval(tmp_path: Path) -> None:
    cells = analysed(tmp_path, cell(8, 50), cell(32, 100)).cells
    single = [replace(each, blocks={(0, 0): np.array([each.batch_size / 100.0])}) for each in cells]
    assert knee(single) == (8, None, None)


def test_trials_with_the_same_block_numbers_are_not_paired(tmp_path: Path) -> None:
    """What the machine did to one trial it did not do to the other at that time: the interval is that of both."""
    cells = analysed(tmp_path, cell(32, 100), cell(128, 100)).cells
    drifting = {(0, k): np.array([1.0 + k / 2]) for k in range(6)}
    one, other = (replace(each, blocks=drifting) for each in cells)
    ratio = swept_ratio(other, one)
    assert ratio.low is not None
    assert ratio.low < 0.8 * ratio.value
    paired = {(0, IN_TURN_BLOCK + k): times for (_, k), times in drifting.items()}
    sure = swept_ratio(replace(other, blocks=paired), replace(one, blocks=paired))
    assert (sure.low, sure.high) == pytest.approx((sure.value, sure.value))


@pytest.mark.parametrize(
    ("rates", "tops"),
    [
        ({}, []),
        ({8: 10.0}, [8]),
        ({8: 10.0, 32: 50.0, 128: 100.0}, [32, 128]),
        ({8: 80.0, 32: 90.0, 128: 100.0, 512: 99.0, 2048: 95.0, 8192: 90.0}, [8, 32, 128]),
        ({8: 10.0, 32: 90.0, 128: 92.0, 512: 94.0, 2048: 100.0}, [8, 32, 128, 2048]),
    ],
)
def test_the_sizes_to_time_again_are_those_around_the_knee_and_the_best(
    rates: dict[int, float], tops: list[int]
) -> None:
    assert top_sizes(rates) == tops
