"""Cells whose steps are not alike: whole periods are timed, and first steps of another kind are not (method.md §8)."""

from math import lcm
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_cells import FakeExecutor, planned
from fake_study import Study, grid
from worldsize.config import StudySettings
from worldsize.study.blocks import (
    RECURRING_S,
    BlockSizes,
    first_steps,
    period,
    profiled_steps,
    warmup_steps,
)
from worldsize.study.plan import PlannedCell

EVERY, FIRST = 7, 5
SETTINGS = StudySettings(sync_every=EVERY, sync_warmup_steps=FIRST, warmup_steps=2, budget="60s")
STEP_S = 0.01
MEETING_S = 0.5


def apart(settings: StudySettings = SETTINGS) -> PlannedCell:
    return planned("local-sgd", 2, settings)


def test_only_cells_of_several_workers_have_a_period() -> None:
    assert (period(apart()), first_steps(apart())) == (EVERY, FIRST)
    alone = planned("local-sgd", 1, SETTINGS)
    assert (period(alone), first_steps(alone)) == (1, 0)
    assert (period(planned("ddp", 2, SETTINGS)), first_steps(planned("ddp", 2, SETTINGS))) == (1, 0)


def test_warming_up_has_the_first_steps_and_a_period_behind_it() -> None:
    assert warmup_steps(apart()) == FIRST + EVERY + 2
    assert warmup_steps(planned("ddp", 2, SETTINGS)) == 2
    none = SETTINGS.model_copy(update={"warmup_steps": 0})
    assert warmup_steps(planned("ddp", 2, none)) == 0
    assert warmup_steps(apart(none)) >= FIRST + EVERY


@given(st.floats(1e-4, 10), st.floats(0, 1e4), st.floats(0.1, 100), st.none() | st.integers(1, 60), st.booleans())
def test_blocks_are_whole_periods(
    step_s: float, left_s: float, beside_s: float, block_steps: int | None, budgeted: bool
) -> None:
    settings = SETTINGS.model_copy(update={"block_steps": block_steps, "steps": None if budgeted else 100})
    cells = [apart(settings), planned("ddp", 2, settings)]
    sizes = BlockSizes(settings, cells, budgeted=budgeted)
    assert sizes.of(cells[0]) % EVERY == 0
    steps_s = {cell.id: step_s for cell in cells}
    sizes.plan(steps_s, left_s)
    assert sizes.of(cells[0]) % EVERY == 0
    sizes.fill(steps_s, list(steps_s), beside_s=beside_s, left_s=left_s)
    assert sizes.of(cells[0]) % EVERY == 0
    assert sizes.of(cells[0]) > 0


@given(st.floats(1e-3, 1), st.floats(0, 1e3), st.lists(st.integers(1, 400), max_size=3))
def test_blocks_are_whole_periods_of_what_a_command_does(step_s: float, left_s: float, periods: list[int]) -> None:
    cell = planned("ddp", 2, SETTINGS)
    sizes = BlockSizes(SETTINGS, [cell], budgeted=True)
    sizes.saw_recurring(cell, periods, step_s)
    sizes.saw_recurring(cell, [], step_s)  # a new launch
    for decide in (sizes.plan, lambda step_s, left_s: sizes.fill(step_s, [cell.id], beside_s=0.1, left_s=left_s)):
        decide({cell.id: step_s}, left_s)
        assert sizes.of(cell) > 0
        short = min(periods, default=1)
        assert sizes.of(cell) % (short if short * step_s <= RECURRING_S else 1) == 0
        if lcm(*periods) * step_s <= RECURRING_S:
            assert sizes.of(cell) % lcm(*periods) == 0


def test_a_trace_has_a_short_period() -> None:
    assert profiled_steps(apart()) == EVERY
    assert profiled_steps(planned("ddp", 2, SETTINGS)) == 3
    long = SETTINGS.model_copy(update={"sync_every": 500})
    assert profiled_steps(apart(long)) < 500


def test_throughput_has_the_right_share_of_meetings(tmp_path: Path) -> None:
    """One step in each period takes fifty times as long; the number of steps so far is the fake clock's own."""
    counts: dict[str, int] = {}

    def step_time(cell: PlannedCell, now: float) -> float:
        counts[cell.id] = counts.get(cell.id, 0) + 1
        meets = cell.strategy == "local-sgd" and counts[cell.id] % EVERY == 0
        return MEETING_S if meets else STEP_S

    executor = FakeExecutor(tmp_path, 0, step_time, launch_s=0.4)
    cells = grid("single", "local-sgd", settings=SETTINGS)
    study = Study(tmp_path, cells, executor, SETTINGS, budget_s=60).run()
    blocks = study.schedule.samples["local-sgd-w2-b4"]
    assert len(blocks) > 2
    for times in blocks.values():
        assert len(times) % EVERY == 0
        assert sum(time == pytest.approx(MEETING_S) for time in times) == len(times) // EVERY
