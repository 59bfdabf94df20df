"""What a step loses, by cause: from blocks in which both cells were timed, with an interval (method.md §8)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import ArrayLike

from worldsize.analysis.cells import CellAnalysis, side_by_side
from worldsize.analysis.losses import LossCause, Losses, losses
from worldsize.analysis.statistics import includes
from worldsize.results.records import STEP_PARTS, CellSummary, Estimate

Parts = Mapping[str, ArrayLike]
"""Seconds per step, of all blocks or of each; parts that are not named take no time."""


def made(
    strategy: str, workers: int, parts: Parts, blocks: Sequence[int] = range(6), batch_size: int = 32
) -> CellAnalysis:
    """A cell of one step in each of these blocks."""
    table = pl.DataFrame(
        {part: np.broadcast_to(parts.get(part, 0.0), len(blocks)).astype(float) for part in STEP_PARTS}
    )
    elapsed_s = table.sum_horizontal().to_numpy()
    return CellAnalysis(
        f"{strategy}-w{workers}-b{batch_size}",
        strategy,
        workers,
        batch_size,
        "complete",
        summary=CellSummary(
            step_s=Estimate(value=1.0, samples=1),
            samples_per_s=Estimate(value=float(batch_size * workers), samples=1),
            parts_s=dict(table.mean().row(0, named=True)),
            timed_steps=len(blocks),
            blocks=len(blocks),
        ),
        blocks={(0, block): elapsed_s[place : place + 1] for place, block in enumerate(blocks)},
        block_means=table.with_columns(
            session=pl.lit(0, pl.Int64), block=pl.Series(list(blocks), dtype=pl.Int64), steps=pl.lit(1, pl.UInt32)
        ),
    )


def lost(cell: CellAnalysis, baseline: CellAnalysis, wrapped: CellAnalysis | None = None) -> Losses:
    cells = side_by_side([cell, baseline, *([wrapped] if wrapped else [])])
    found = losses(cells[0], cells[1], cells[2] if wrapped else None)
    assert found is not None
    return found


def values(found: Losses) -> dict[LossCause, float]:
    return {cause: loss.value for cause, loss in found.by_cause.items()}


BASELINE = {"forward_s": 0.1, "backward_s": 0.2, "data_wait_s": 0.01, "other_s": 0.09}


def test_causes_add_up_to_what_the_step_lost() -> None:
    more = {"forward_s": 0.15, "backward_s": 0.22, "data_wait_s": 0.02, "exposed_sync_s": 0.08, "other_s": 0.13}
    found = lost(made("ddp", 2, more), made("single", 1, BASELINE))
    assert (found.step_s, found.baseline_s) == pytest.approx((0.6, 0.4))
    assert values(found) == pytest.approx(
        {"exposed_sync": 0.08, "compute": 0.07, "copy_and_other": 0.04, "data_wait": 0.01}
    )
    assert list(found.by_cause) == ["exposed_sync", "compute", "copy_and_other", "data_wait"], "the largest first"


def test_what_one_worker_in_the_wrapper_loses_is_the_wrappers() -> None:
    baseline = made("single", 1, {"forward_s": 0.1, "other_s": 0.3})
    wrapped = made("ddp", 1, {"forward_s": 0.12, "other_s": 0.33})
    found = lost(made("ddp", 2, {"forward_s": 0.15, "exposed_sync_s": 0.08, "other_s": 0.37}), baseline, wrapped)
    assert values(found) == pytest.approx(
        {"exposed_sync": 0.08, "wrapper": 0.05, "copy_and_other": 0.04, "compute": 0.03, "data_wait": 0.0}
    )


def test_with_one_global_batch_a_worker_is_held_against_its_share() -> None:
    """A step is 30 ms and 1 ms a sample: 94 ms of B = 64, so 47 for one of two workers; 62 of b = 32."""
    several = made("ddp", 2, {"forward_s": 0.062, "exposed_sync_s": 0.003})
    baseline = made("single", 1, {"forward_s": 0.094}, batch_size=64)
    found = lost(several, baseline)
    assert (found.step_s, found.baseline_s) == pytest.approx((0.065, 0.047))
    assert values(found) == pytest.approx(
        {"compute": 0.015, "exposed_sync": 0.003, "data_wait": 0.0, "copy_and_other": 0.0}
    )
    assert next(iter(found.by_cause)) == "compute"
    wrapped = made("ddp", 1, {"forward_s": 0.096}, batch_size=64)
    assert values(lost(several, baseline, wrapped)) == pytest.approx(
        {"compute": 0.013, "exposed_sync": 0.003, "wrapper": 0.002, "data_wait": 0.0, "copy_and_other": 0.0}
    )


def without(cell: CellAnalysis, *parts: str) -> CellAnalysis:
    """A script of one's own in which nobody marked these."""
    assert cell.summary is not None
    known = {part: seconds for part, seconds in cell.summary.parts_s.items() if part not in parts}
    unmarked = cell.block_means.with_columns(pl.lit(None, pl.Float64).alias(part) for part in parts)
    return replace(cell, summary=cell.summary.model_copy(update={"parts_s": known}), block_means=unmarked)


def test_a_loss_shows_in_the_parts_that_both_cells_have() -> None:
    several = without(made("ddp", 2, {**BASELINE, "exposed_sync_s": 0.1}), "optimizer_s", "copy_s")
    found = lost(several, made("single", 1, BASELINE))
    assert values(found) == pytest.approx(
        {"exposed_sync": 0.1, "compute": 0.0, "data_wait": 0.0, "copy_and_other": 0.0}, abs=1e-9
    )
    cells = side_by_side([without(several, *STEP_PARTS), made("single", 1, BASELINE)])
    assert losses(cells[0], cells[1], None) is None


def test_what_the_machine_does_later_is_no_loss() -> None:
    """Its cores are a fifth slower from block 5 on, its loader is as fast as before; the wrapped worker ended there."""
    slower = np.where(np.arange(30) < 5, 1.0, 1.2)
    waiting = {"data_wait_s": 0.02}
    baseline = made("single", 1, {"backward_s": 0.1 * slower, **waiting}, range(30))
    wrapped = made("ddp", 1, {"backward_s": 0.1 * slower[:5], **waiting}, range(5))
    cell = made("ddp", 2, {"backward_s": 0.1 * slower, "exposed_sync_s": 0.004, **waiting}, range(30))
    found = lost(cell, baseline, wrapped)
    assert values(found) == pytest.approx(
        {"exposed_sync": 0.004, "compute": 0.0, "data_wait": 0.0, "copy_and_other": 0.0, "wrapper": 0.0}, abs=1e-9
    )
    # Five blocks without, and 25 with the slower cores: 0.02 + 0.1167 s.
    assert found.baseline_s == pytest.approx(0.02 + 0.1 * slower.mean())
    assert found.step_s == pytest.approx(found.baseline_s + 0.004)


def test_a_baseline_that_ended_early_is_brought_to_the_step_that_is_printed() -> None:
    slower = np.where(np.arange(30) < 5, 1.0, 1.2)
    cell = made("ddp", 2, {"backward_s": 0.1 * slower, "exposed_sync_s": 0.02 * slower}, range(30))
    found = lost(cell, made("single", 1, {"backward_s": 0.1}, range(5)))
    assert found.step_s == pytest.approx(0.12 * slower.mean())
    assert found.baseline_s == pytest.approx(0.1 * slower.mean())
    assert values(found)["exposed_sync"] == pytest.approx(0.02 * slower.mean())
    assert values(found)["compute"] == pytest.approx(0.0, abs=1e-9)


def test_cells_that_were_never_timed_in_turn_lose_nothing_that_is_known() -> None:
    cells = side_by_side([made("ddp", 2, BASELINE, range(6)), made("single", 1, BASELINE, range(6, 12))])
    assert losses(cells[0], cells[1], None) is None


def test_parts_are_those_of_the_printed_step() -> None:
    """A tenth of the elapsed time lies between the steps of its ranks; it goes to all parts in proportion."""
    cell = made("ddp", 2, {**BASELINE, "exposed_sync_s": 0.05})
    found = lost(
        replace(cell, blocks={key: times / 0.9 for key, times in cell.blocks.items()}), made("single", 1, BASELINE)
    )
    assert (found.step_s, found.baseline_s) == pytest.approx((0.45 / 0.9, 0.4)), "as both are printed"
    assert values(found)["exposed_sync"] == pytest.approx(0.05 / 0.9)
    assert sum(values(found).values()) == pytest.approx(0.45 / 0.9 - 0.4)


@pytest.mark.parametrize("wrapped_blocks", [None, 5, 12])
def test_intervals_hold_the_truth_and_are_no_wider_than_they_must_be(wrapped_blocks: int | None) -> None:
    """Blocks of every cell vary by 2 % by themselves, and by 30 % with the machine; 12 of them, of 0.1 s of compute."""
    generator = np.random.default_rng(3)
    held = 0
    halves: list[float] = []
    for _ in range(100):
        machine = np.exp(0.3 * generator.standard_normal(12))
        one, other, around = (0.1 * machine * np.exp(0.02 * generator.standard_normal(12)) for _ in range(3))
        wrapped = None
        if wrapped_blocks is not None:
            wrapped = made("ddp", 1, {"backward_s": around[:wrapped_blocks]}, range(wrapped_blocks))
        cell = made("ddp", 2, {"backward_s": one, "exposed_sync_s": 0.01}, range(12))
        loss = lost(cell, made("single", 1, {"backward_s": other}, range(12)), wrapped).by_cause["compute"]
        assert loss.low is not None
        assert loss.high is not None
        held += includes(loss, 0)
        halves.append((loss.high - loss.low) / 2)
    assert held >= 88, "95 of 100, less three standard deviations"
    # Of two cells, each known to 2 % of about 0.1 s in a block: Student's quantile for the fewest blocks, and no more.
    quantile = {None: 2.20, 5: 2.78, 12: 2.20}[wrapped_blocks]
    errors = 2 / 12 if wrapped_blocks != 5 else 2 / 5
    assert np.median(halves) < 1.35 * quantile * 0.002 * np.sqrt(errors)


def test_one_block_in_common_has_no_interval() -> None:
    found = lost(made("ddp", 2, {**BASELINE, "exposed_sync_s": 0.1}), made("single", 1, BASELINE, range(1)))
    assert found.by_cause["exposed_sync"].value == pytest.approx(0.1)
    assert {loss.low for loss in found.by_cause.values()} == {None}


def test_one_block_of_the_wrapped_worker_explains_nothing() -> None:
    wrapped = made("ddp", 1, {**BASELINE, "other_s": 0.2}, range(1))
    cells = made("ddp", 2, {**BASELINE, "other_s": 0.2}), made("single", 1, BASELINE)
    assert "wrapper" not in lost(*cells, wrapped).by_cause
    assert values(lost(*cells, made("ddp", 1, {**BASELINE, "other_s": 0.2}, range(2))))["wrapper"] > 0.1
