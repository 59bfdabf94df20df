"""A cap on timed steps within a budget, whose last blocks are longer than the first."""

from pathlib import Path

import numpy as np
import pytest

from fake_cells import FakeExecutor
from fake_study import Study, grid
from worldsize.config import StudySettings


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
