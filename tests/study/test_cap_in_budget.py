"""A cap on timed steps within a budget, whose last blocks are longer than the first."""

from pathlib import Path

import numpy as np
import pytest

from fake_cells import FakeExecutor
from fake_study import Study, grid
from worldsize.config import StudySettings
from worldsize.study.blocks import timed_steps


@pytest.mark.parametrize(
    ("lengths", "steps"), [((4, 4, 4), 12), ((4, 4, 8), 16), ((4, 4, 1), 12), ((8, 4), 16), ((1,), 1)]
)
def test_blocks_count_by_their_own_length(lengths: tuple[int, ...], steps: int) -> None:
    """Only the last block of a session can have been broken off."""
    blocks = {(session, at): np.ones(length) for session in (1, 2) for at, length in enumerate(lengths)}
    assert timed_steps(dict(reversed(blocks.items()))) == 2 * steps


@pytest.mark.parametrize("budget_s", [120.0, 200.0])
def test_a_cap_is_reached_before_it_ends_a_cell(tmp_path: Path, budget_s: float) -> None:
    generator = np.random.default_rng(1)
    settings = StudySettings(budget="60s", steps=100, warmup_steps=1, target_interval=0.0)
    executor = FakeExecutor(tmp_path, 0, lambda cell, now: 0.3 * float(np.exp(generator.normal() / 2)), launch_s=0.4)
    study = Study(tmp_path, grid("single", "ddp", settings=settings), executor, settings, budget_s=budget_s).run()
    for name, ending in study.heard.endings.items():
        timed = sum(len(times) for times in study.schedule.samples[name].values())
        assert ending != "cap" or timed >= 100
    assert "cap" in study.heard.endings.values()
