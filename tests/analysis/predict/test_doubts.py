"""How far off a forecast may be: the errors that its run shows, and how little the run knows of its own steps."""

from pathlib import Path

import numpy as np
import pytest

from made_forecasts import Truth, made_forecast_run
from worldsize.analysis.predict.answer import answer
from worldsize.analysis.predict.doubts import USUAL_ERROR, doubt_of
from worldsize.analysis.study import analyse
from worldsize.config import PredictSettings
from worldsize.results.folder import load_run
from worldsize.results.forecast_records import Forecast

CELLS = (("single", 1, 32), ("all-reduce", 2, 32))
RUNS = 20


def forecast(folder: Path, truth: Truth, world_size: int = 8) -> Forecast:
    analysis = analyse(load_run(made_forecast_run(folder, truth, CELLS)))
    return answer(analysis, PredictSettings(world_sizes=(world_size,))).rows[0]


def test_a_run_that_tells_nothing_of_its_errors_has_the_usual_ones() -> None:
    assert doubt_of([]) == pytest.approx(USUAL_ERROR)
    assert doubt_of([0.01, -0.01]) < USUAL_ERROR < doubt_of([0.2])
    assert doubt_of([], other_link=True) > USUAL_ERROR
    assert doubt_of([], latency_share=0.6) == pytest.approx(np.hypot(USUAL_ERROR, 0.15))
    assert doubt_of([], source=0.3) == pytest.approx(np.hypot(USUAL_ERROR, 0.3))


@pytest.mark.parametrize("unlike", [0.0, 0.1, 0.4])
def test_the_band_of_a_speedup_holds_it_where_the_run_hardly_knows_its_own(tmp_path: Path, unlike: float) -> None:
    """Four blocks a cell that others have disturbed: what was measured is a matter of luck, and so is the forecast."""
    held = 0
    for seed in range(RUNS):
        truth = Truth(blocks=4, unlike=unlike, seed=10 * seed)
        found = forecast(tmp_path / str(seed), truth).speedup
        assert found is not None
        held += found.low <= 8 * truth.step_s(1) / truth.step_s(8) <= found.high
    assert held >= 0.9 * RUNS


def test_a_run_that_knows_its_steps_has_a_narrow_band(tmp_path: Path) -> None:
    found = forecast(tmp_path / "run", Truth(spread=0.01, shared=0.01)).speedup
    assert found is not None
    assert found.high / found.low < 1.12
