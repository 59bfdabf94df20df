"""Clocks that drift, between the moments at which they were aligned: the truth is planted."""

import polars as pl
import pytest

from worldsize.analysis.clocks import interpolated
from worldsize.results.step_records import MAX_DRIFT

PPM = 50e-6
"""How much faster the clock of rank 1 runs."""
SECOND = 10**9
STEP_NS = SECOND // 2
ERROR = 1000


def true_offset_ns(at_ns: int) -> int:
    """What to add to a reading of rank 1's clock to get rank 0's."""
    return -round(at_ns * PPM) - 7 * SECOND


def a_turn(block: int, begin_ns: int, steps: int, *, aligned_after: bool = True, launch: int = 0) -> pl.DataFrame:
    """Steps of rank 1: all have the offset from before the turn, the last one that from after it."""
    starts = [begin_ns + STEP_NS * k for k in range(steps)]
    offsets = [true_offset_ns(begin_ns)] * steps
    if aligned_after:
        offsets[-1] = true_offset_ns(begin_ns + STEP_NS * steps)
    return pl.DataFrame(
        {
            "rank": [1] * steps,
            "session": [0] * steps,
            "launch": [launch] * steps,
            "block": [block] * steps,
            "step_s": [STEP_NS / 1e9] * steps,
            "start_ns": starts,
            "clock_offset_ns": offsets,
            "clock_error_ns": [ERROR + (k == steps - 1) for k in range(steps)],
        }
    )


def wrong_ns(steps: pl.DataFrame) -> list[int]:
    """How wrong the offsets of these steps are, at their middle."""
    middle = (steps["start_ns"] + STEP_NS // 2).to_list()
    return [abs(got - true_offset_ns(at)) for got, at in zip(steps["clock_offset_ns"], middle, strict=True)]


def test_a_turn_of_ten_minutes_is_right_in_its_middle() -> None:
    steps = a_turn(0, 3 * SECOND, 1200)
    assert max(wrong_ns(steps)) > 29_000_000, "50 ppm of 600 s are 30 ms"
    found = interpolated(steps)
    assert max(wrong_ns(found)) <= 2
    assert set(found["clock_error_ns"]) == {ERROR + 1}
    assert found.drop("clock_offset_ns", "clock_error_ns").equals(steps.drop("clock_offset_ns", "clock_error_ns"))


def test_each_turn_goes_by_its_own_two_ends() -> None:
    """Between two turns other cells have theirs; a launch has a process, and so maybe a host, of its own."""
    turns = [a_turn(0, SECOND, 40), a_turn(1, 900 * SECOND, 2), a_turn(2, 2000 * SECOND, 1)]
    other = a_turn(3, 5 * SECOND, 8, launch=1).with_columns(pl.col("clock_offset_ns") + 10**15)
    found = interpolated(pl.concat([*turns, other]))
    assert max(wrong_ns(found.filter(launch=0, block=0))) <= 2
    assert max(wrong_ns(found.filter(launch=0, block=1))) <= 2
    assert max(wrong_ns(found.filter(launch=0, block=2))) <= STEP_NS * PPM
    assert max(wrong_ns(found.filter(launch=1).with_columns(pl.col("clock_offset_ns") - 10**15))) <= 2


def test_what_was_not_aligned_again_is_as_wrong_as_it_says() -> None:
    steps = a_turn(0, SECOND, 200, aligned_after=False).with_columns(pl.lit(ERROR).alias("clock_error_ns"))
    found = interpolated(steps)
    assert found["clock_offset_ns"].equals(steps["clock_offset_ns"])
    assert all(wrong <= error for wrong, error in zip(wrong_ns(found), found["clock_error_ns"], strict=True))
    assert found["clock_error_ns"][-1] == pytest.approx(ERROR + MAX_DRIFT * 199.5 * STEP_NS, abs=1)


def test_one_clock_is_left_as_it_is() -> None:
    same = a_turn(0, SECOND, 5).with_columns(pl.lit(0).alias("clock_offset_ns"), pl.lit(0).alias("clock_error_ns"))
    assert interpolated(same).equals(same)
    assert interpolated(same.clear()).equals(same.clear())
