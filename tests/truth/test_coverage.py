"""Intervals hold the truth as often as they say, also where blocks are correlated and launches differ (method.md §8).

The whole table of cells, blocks, correlations and both ways to end is `benchmarks/interval_coverage.py`.
"""

import numpy as np
import polars as pl
import pytest

from made_studies import Held, World, doubling, hold, share, simulate
from worldsize.analysis import levels as fits
from worldsize.analysis.dependence import CORRELATIONS, SPREADS, dependence, series
from worldsize.analysis.levels import levels, ratio
from worldsize.analysis.statistics import half_width
from worldsize.analysis.summary import block_launches

TOO_FEW, MAX = 0.85, 0.98
"""Of kinds that real studies show, intervals that hold in 85 % must fail here (asked is 88 in the worst, 93 to 97 over
all); where blocks are independent they should hold in 98 % at most. What they cover exactly takes the benchmark."""
WIDEST = 1.25
"""Width of an interval of independent blocks ÷ that of Student's, at most, in the median study."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many studies as a share needs are affordable with fewer resamples each."""
    monkeypatch.setattr(fits, "RESAMPLES", fits.MIN_RESAMPLES)


def held(world: World, studies: int) -> Held:
    return hold(world, np.random.default_rng(17), studies)


def luck(limit: float, studies: int) -> float:
    """How far from it a share may be by chance, with 99 %, counting the ratios of a study, which share much, as one."""
    return 2.33 * float(np.sqrt(limit * (1 - limit) / studies))


def least(studies: int) -> float:
    """What intervals that hold in 90 % reach with a chance of 1 %."""
    return TOO_FEW + luck(TOO_FEW, studies)


def most(studies: int) -> float:
    """What intervals that hold in 98 % exceed with a chance of 1 %; of 500 studies those that hold in 99.9 % do."""
    assert studies >= 400, "of fewer the limit is all of them, or nearly"
    return MAX + luck(MAX, studies)


@pytest.mark.parametrize(
    ("world", "studies"),
    [
        pytest.param(World(4, 20, correlation=0.4), 400, id="correlated"),
        pytest.param(
            World(4, 20, correlation=0.2, spread=0.02, before=doubling(20)), 400, id="correlated, and launches differ"
        ),
        pytest.param(World(2, 12, spread=0.08, before=doubling(12)), 400, id="a launch draws one of two states"),
        pytest.param(World(2, 30, correlation=0.2, aim=0.03), 300, id="correlated, ended by precision"),
        pytest.param(World(3, 12, correlation=0.2, tails=0.01), 400, id="some steps take several times as long"),
    ],
)
def test_ratios_hold_where_blocks_depend_on_each_other(world: World, studies: int) -> None:
    found = held(world, studies)
    assert share(found.ratios) >= least(studies)
    assert share(found.headlines) >= least(studies)


def test_what_no_study_has_shown_is_held_less_often() -> None:
    """A correlation of 0.8 between neighbours: said in method.md, and not paid for by all others."""
    found = held(World(2, 12, correlation=0.8, before=doubling(12)), 400)
    assert 0.50 < share(found.ratios) < 0.90


@pytest.mark.parametrize("blocks", [6, 12, 30])
@pytest.mark.parametrize("cells", [2, 6])
def test_independent_blocks_are_not_held_for_much_worse_than_they_are(cells: int, blocks: int) -> None:
    found = held(World(cells, blocks, before=doubling(blocks)), studies=400)
    assert least(400) <= share(found.ratios) <= most(400)
    assert np.median(found.of_student) <= WIDEST + 0.02  # of 400 studies the median is known to 0.02


def widened(values: list[float], *launches: int) -> float:
    """By how much a cell of such blocks is."""
    keys = [(0, block) for block in range(len(values))]
    one = series(dict(zip(keys, values, strict=True)), dict(zip(keys, launches, strict=False)))
    return dependence([one], 1.0).widening(one)


def test_what_blocks_show_of_each_other_widens() -> None:
    alternating = [0.01, -0.01] * 6
    assert 1 <= widened(alternating) < 1.2 < widened(sorted(alternating))
    apart = [value + 0.1 * (block >= 6) for block, value in enumerate(alternating)]
    assert widened(apart, *[0] * 6, *[1] * 6) > 2


def test_the_fastest_of_six_equal_cells_is_held() -> None:
    """It seems the fastest because it was lucky; an interval that does not know it held it in 86 %."""
    found = held(World(7, 20), studies=500)
    assert least(500) <= share(found.headlines) <= most(500)


def test_the_spread_of_launches_is_pooled_over_the_cells() -> None:
    """Two cells know little of it from three launches each; the same two beside others know more."""

    def width(cells: int) -> float:
        widths = []
        for seed in range(30):
            study = simulate(World(cells, 20, spread=0.02), np.random.default_rng(seed))
            found = levels(study.samples, study.launches)
            widths.append(half_width(ratio(found["cell0"], found["cell1"]).estimate) or 0.0)
        return float(np.std(np.log(widths)))

    assert width(8) < 0.6 * width(2)


def test_what_cannot_be_told_widens_nothing() -> None:
    """One launch in a session has no spread that could be seen, and launches of a block each are blocks."""
    study = simulate(World(4, 20, before=()), np.random.default_rng(1))
    alike = {name: {key: 0 for key in blocks} for name, blocks in study.samples.items()}
    each = {name: {key: key[1] for key in blocks} for name, blocks in study.samples.items()}
    found = [
        ratio(fitted["cell0"], fitted["cell1"])
        for fitted in (levels(study.samples), levels(study.samples, alike), levels(study.samples, each))
    ]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_correlation_and_spread_are_found(correlation: float) -> None:
    study = simulate(World(8, 60, correlation, spread=0.03, before=(20, 20)), np.random.default_rng(5))
    seen = levels(study.samples, study.launches)["cell0"].dependence
    assert seen is not None
    assert float(seen.weights.sum(axis=1) @ CORRELATIONS) == pytest.approx(correlation, abs=0.12)
    assert float(seen.weights[:, 0].sum()) < 0.01  # that launches are alike
    assert 1 < float(seen.weights.sum(axis=0) @ SPREADS) < 16  # true: (3 ÷ 1.5)² = 4


def test_launches_come_from_the_records() -> None:
    steps = pl.DataFrame({"session": [0, 0, 0, 1], "block": [0, 0, 1, 2], "launch": [0, 0, 1, 0]})
    assert block_launches(steps) == {(0, 0): 0, (0, 1): 1, (1, 2): 0}
