from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worldsize.analysis import statistics
from worldsize.analysis.levels import levels, ratio, ratio_estimate
from worldsize.analysis.statistics import Blocks, half_width, includes, median_estimate, outliers
from worldsize.results.records import Estimate

TRIALS = 200


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many trials as a coverage needs are affordable with fewer resamples each."""
    monkeypatch.setattr(statistics, "RESAMPLES", statistics.MIN_RESAMPLES)


def blocks(values: list[list[float]], session: int = 0) -> Blocks:
    return {(session, k): np.array(samples) for k, samples in enumerate(values)}


def noisy(generator: np.random.Generator, drift: np.ndarray, factor: float = 1.0, session: int = 0) -> Blocks:
    """Blocks of three steps on a machine whose speed is `drift`, with noise per block and per step."""
    return {
        (session, k): factor * now * np.exp(generator.normal(0, 0.02) + generator.normal(0, 0.03, 3))
        for k, now in enumerate(drift)
    }


def coverage(estimate: Callable[[], Estimate], truth: float) -> float:
    return sum(includes(estimate(), truth) for _ in range(TRIALS)) / TRIALS


class TestMedian:
    def test_is_that_of_the_pooled_samples_of_blocks_of_any_length(self) -> None:
        found = median_estimate(blocks([[1.0, 2.0], [3.0], [4.0, 5.0, 60.0]]))
        assert found.value == 3.5
        assert found.samples == 3
        assert found.low is not None
        assert found.high is not None
        assert 0 < found.low <= 3.5 <= found.high

    def test_one_sample_has_no_interval(self) -> None:
        assert median_estimate(blocks([[0.5]])) == Estimate(value=0.5, samples=1)

    def test_one_block_is_resampled_by_its_steps(self) -> None:
        found = median_estimate(blocks([[1.0, 1.1, 1.2, 1.3, 1.4, 1.5]]))
        assert found.samples == 6
        assert found.low is not None
        assert found.low < 1.25

    def test_equal_samples_have_an_interval_without_width(self) -> None:
        found = median_estimate(blocks([[2.0, 2.0], [2.0, 2.0]]))
        assert [found.low, found.high] == pytest.approx([2, 2])

    def test_blocks_that_differ_give_a_wider_interval_than_their_steps_alone_would(self) -> None:
        generator = np.random.default_rng(0)
        clustered = [list(level * np.exp(generator.normal(0, 0.001, 10))) for level in (1.0, 1.1, 1.2, 1.3)]
        by_blocks = half_width(median_estimate(blocks(clustered)))
        shuffled = list(generator.permutation(np.concatenate(clustered)))
        by_steps = half_width(median_estimate(blocks([shuffled])))
        assert by_blocks is not None
        assert by_steps is not None
        assert by_blocks > 1.5 * by_steps

    def test_is_the_same_each_time(self) -> None:
        samples = blocks([[1.0, 1.2, 1.1], [1.3, 0.9, 1.0], [1.0, 1.1, 1.4]])
        assert median_estimate(samples) == median_estimate(samples)

    @pytest.mark.parametrize("wrong", [[], [[]], [[1.0, 0.0]], [[-1.0]], [[float("nan")]]])
    def test_refuses_nothing_and_times_that_cannot_be(self, wrong: list[list[float]]) -> None:
        with pytest.raises(ValueError, match="sample"):
            median_estimate(blocks(wrong))

    @pytest.mark.usefixtures("quick")
    @pytest.mark.parametrize("count", [2, 5, 15])
    def test_interval_covers_the_truth(self, count: int) -> None:
        generator = np.random.default_rng(count)
        assert coverage(lambda: median_estimate(noisy(generator, np.ones(count))), 1.0) >= 0.9

    @pytest.mark.usefixtures("quick")
    def test_interval_of_one_block_of_autocorrelated_steps_covers_the_truth(self) -> None:
        generator = np.random.default_rng(3)

        def one_block() -> Blocks:
            noise, steps = generator.normal(0, 0.03, 150), np.zeros(150)
            for i in range(1, 150):
                steps[i] = 0.5 * steps[i - 1] + noise[i]
            return {(0, 0): np.exp(steps[50:])}

        assert coverage(lambda: median_estimate(one_block()), 1.0) >= 0.9


class TestRatio:
    def test_is_that_of_elapsed_times_over_the_blocks_of_both(self) -> None:
        found = ratio_estimate(
            blocks([[2.0, 2.0, 8.0], [4.0] * 3, [8.0] * 3]), blocks([[1.0] * 3, [1.0] * 3, [2.0] * 3])
        )
        assert found.estimate.value == pytest.approx((12 + 12 + 24) / (3 + 3 + 6))
        assert found.estimate.samples == 3
        assert found.paired

    def test_drift_common_to_both_cells_cancels(self) -> None:
        # The machine halves its speed while the cells are timed in turns: each turn's ratio is still exactly 1.8.
        slow = np.linspace(1, 2, 8)
        top = {(0, k): 1.8 * slow[k] * np.ones(3) for k in range(8)}
        bottom = {(0, k): slow[k] * np.ones(3) for k in range(8)}
        paired = ratio_estimate(top, bottom).estimate
        assert paired.value == pytest.approx(1.8)
        assert half_width(paired) == pytest.approx(0, abs=1e-9)
        # The same samples, the numerator of the first half beside the denominator of the second: wrong.
        early = {(0, k): top[0, k] for k in range(4)}
        late = {(1, k): bottom[0, k + 4] for k in range(4)}
        unpaired = ratio_estimate(early, late)
        assert not unpaired.paired
        assert abs(unpaired.estimate.value - 1.8) > 0.5

    def test_a_step_that_takes_longer_now_and_then_is_in_it(self) -> None:
        """Three steps of 100 ms and one of 500 ms are 200 ms a step."""
        stalling, steady = blocks([[0.1, 0.1, 0.1, 0.5]] * 6), blocks([[0.1] * 4] * 6)
        assert ratio_estimate(stalling, steady).estimate.value == pytest.approx(2.0)

    def test_a_disturbed_block_is_in_it_and_in_its_interval(self) -> None:
        found = ratio_estimate(blocks([[1.8], [1.8], [1.8], [18.0], [1.8]]), blocks([[1.0]] * 5)).estimate
        assert found.value == pytest.approx(5.04)
        assert includes(found, 1.8)

    def test_interval_is_useful_on_a_machine_with_two_speeds(self) -> None:
        """A third slower now and then, as on cores shared with a neighbour: a median would jump between the two."""
        generator = np.random.default_rng(5)
        slow = np.where(generator.random(48) < 0.5, 1.33, 1.0) * np.exp(0.02 * generator.standard_normal(48))
        top, bottom = blocks([[each] for each in slow]), blocks([[1.0]] * 48)
        width = half_width(ratio_estimate(top, bottom).estimate)
        as_median = half_width(median_estimate(top))
        assert width is not None
        assert as_median is not None
        assert width < 0.06
        assert width < as_median / 2

    def test_only_common_blocks_count(self) -> None:
        found = ratio_estimate(blocks([[2.0], [2.0], [2.0], [50.0]]), blocks([[1.0], [1.0], [1.0]]))
        assert found.estimate.value == pytest.approx(2)
        assert found.estimate.samples == 3

    def test_one_common_block_has_no_interval(self) -> None:
        found = ratio_estimate(blocks([[2.0, 2.2, 2.4]]), blocks([[1.0, 1.1, 1.2]]))
        assert found.paired
        assert (found.estimate.low, found.estimate.high, found.estimate.samples) == (None, None, 1)

    def test_one_block_on_either_side_has_no_interval_when_unpaired(self) -> None:
        found = ratio_estimate(blocks([[2.0], [2.1], [2.2]]), blocks([[1.0]], session=1))
        assert not found.paired
        assert (found.estimate.low, found.estimate.high) == (None, None)

    @given(
        st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.01, 100)), min_size=2, max_size=8),
        st.floats(0.1, 10),
    )
    @settings(deadline=None, max_examples=25)
    def test_turns_over_and_scales_exactly(self, pairs: list[tuple[float, float]], factor: float) -> None:
        top, bottom = blocks([[a] for a, _ in pairs]), blocks([[b] for _, b in pairs])
        there, back = ratio_estimate(top, bottom), ratio_estimate(bottom, top)
        assert there.estimate.value * back.estimate.value == pytest.approx(1)
        assert there.estimate.low is not None
        assert there.estimate.high is not None
        assert there.estimate.low <= there.estimate.value <= there.estimate.high
        scaled = there.scaled(factor).estimate
        assert scaled.high == pytest.approx(factor * there.estimate.high)

    @pytest.mark.usefixtures("quick")
    @pytest.mark.parametrize("count", [2, 3, 5, 8, 20])
    def test_interval_covers_the_truth_on_a_drifting_machine(self, count: int) -> None:
        generator = np.random.default_rng(count)

        def estimate() -> Estimate:
            drift = np.exp(np.cumsum(generator.normal(0, 0.05, count)))
            return ratio_estimate(noisy(generator, drift, 1.8), noisy(generator, drift)).estimate

        assert coverage(estimate, 1.8) >= 0.9

    @pytest.mark.usefixtures("quick")
    def test_unpaired_interval_covers_the_truth_on_a_steady_machine(self) -> None:
        generator, steady = np.random.default_rng(0), np.ones(6)

        def estimate() -> Estimate:
            return ratio_estimate(noisy(generator, steady, 1.8), noisy(generator, steady, session=1)).estimate

        assert coverage(estimate, 1.8) >= 0.9

    def test_interval_narrows_with_more_blocks(self) -> None:
        generator = np.random.default_rng(1)
        few, many = (
            ratio_estimate(noisy(generator, np.ones(count)), noisy(generator, np.ones(count))).estimate
            for count in (5, 80)
        )
        assert (half_width(many) or 0) < (half_width(few) or 0) / 2


class TestOutliers:
    def test_flags_what_is_far_from_the_median(self) -> None:
        values = np.array([1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 5.0, 0.2])
        assert outliers(values).tolist() == [False] * 6 + [True, True]

    def test_matches_the_definition_at_the_limit(self) -> None:
        # Median 0 and MAD 1: the modified z-score of x is 0.6745 x, which passes 3.5 at x = 5.19.
        base = [-2.0, -1.0, -1.0, 0.0, 1.0, 1.0, 2.0]
        assert not outliers([*base, 5.18, -5.18])[-2:].any()
        assert outliers([*base, 5.2, -5.2])[-2:].all()

    def test_a_single_different_value_among_equal_ones_is_flagged(self) -> None:
        assert outliers([1.0] * 9 + [1.5]).tolist() == [False] * 9 + [True]

    @pytest.mark.parametrize("values", [[], [1.0], [2.0, 2.0, 2.0]])
    def test_flags_nothing_without_spread(self, values: list[float]) -> None:
        assert not outliers(values).any()
        assert outliers(values).size == len(values)


def test_without_an_interval_nothing_is_ruled_out() -> None:
    single = Estimate(value=2, samples=1)
    assert includes(single, 1)
    assert half_width(single) is None
    assert not includes(Estimate(value=2, low=1.5, high=2.5, samples=5), 1)


def test_levels_without_resamples_have_no_interval() -> None:
    blocks = {(0, number): np.array([1.0, 1.1 + 0.01 * number]) for number in range(4)}
    found = levels({"a": blocks, "b": blocks}, most_resamples=0)
    assert found["a"].step_s.value == pytest.approx(found["b"].step_s.value)
    assert (found["a"].step_s.low, found["a"].step_s.high) == (None, None)
    assert ratio(found["a"], found["b"]).estimate.low is None
