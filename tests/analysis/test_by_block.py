"""Means and ratios over blocks, with intervals that hold as often as they say."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from advised import exchanging, longer, steps, study
from worldsize.analysis.steps import block_means, mean_over, rank_means, ratio_over
from worldsize.results.folder import load_run


def test_a_ratio_is_that_of_the_totals() -> None:
    blocks = pl.DataFrame({"top": [1.0, 3.0], "bottom": [2.0, 10.0]})
    found = ratio_over(blocks, pl.col("top"), pl.col("bottom"))
    assert found is not None
    assert found.value == pytest.approx(4 / 12), "not the mean of 0.5 and 0.3"
    assert found.low is not None
    assert found.low < 4 / 12


def test_a_ratio_that_is_the_same_in_every_block_is_exact() -> None:
    found = ratio_over(pl.DataFrame({"bottom": [1.0, 5.0, 2.0]}), 0.25 * pl.col("bottom"), pl.col("bottom"))
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.25, 0.25))


def test_one_block_has_no_interval_and_none_no_value() -> None:
    one = ratio_over(pl.DataFrame({"x": [2.0]}), pl.col("x"), 2 * pl.col("x"))
    assert one is not None
    assert (one.value, one.low) == (0.5, None)
    empty = pl.DataFrame(schema={"x": pl.Float64})
    assert ratio_over(empty, pl.col("x"), pl.col("x")) is None
    assert ratio_over(pl.DataFrame({"x": [0.0]}), pl.col("x"), pl.col("x")) is None
    assert mean_over(empty, pl.col("x")) is None


def test_the_interval_of_a_ratio_holds_as_often_as_it_says() -> None:
    """Shares of 0.2 on average, of steps that drift: 95 % of the intervals hold it, as far as 600 can tell."""
    generator = np.random.default_rng(5)
    inside = 0
    for _ in range(600):
        step = generator.uniform(0.5, 1.0, size=8)
        blocks = pl.DataFrame({"step": step, "part": step * generator.normal(0.2, 0.05, size=8)})
        found = ratio_over(blocks, pl.col("part"), pl.col("step"))
        assert found is not None
        assert found.low is not None
        assert found.high is not None
        inside += found.low <= 0.2 <= found.high
    assert 0.92 <= inside / 600 <= 0.98


def test_blocks_and_ranks_keep_their_own_means(tmp_path: Path) -> None:
    cell = exchanging(exposed=0.0, blocks=2)
    slow = steps(cell, longer("backward_s", (1.0, 2.0), only_rank=1))
    analysis = study(tmp_path, [cell], changes=[slow])
    raw = load_run(tmp_path).cells[cell.id]
    # Backward is 0.6 of 500 ms; rank 1 takes twice that in the second block.
    assert block_means(raw)["backward_s"].to_list() == pytest.approx([0.3, 0.45])
    assert rank_means(raw)["backward_s"].to_list() == pytest.approx([0.3, 0.3, 0.3, 0.6])
    assert analysis.cells[0].block_means.equals(block_means(raw))
