"""Which size of the benchmark is timed next: made links whose noise is known, and a clock that is told."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Callable

import pytest

from worldsize.analysis.bandwidth import call_s
from worldsize.results.comm_records import CommSample
from worldsize.study.sampling import (
    ENOUGH,
    MIN_SAMPLES,
    SAMPLE_S,
    SHORT_SAMPLES_S,
    Case,
    Sampling,
    Together,
    coarse_to_fine,
)

SIZES = [1024 * 4**k for k in range(6)]
TURN_S = 0.001


class Link:
    """Calls take what the model says, times noise of its own for each case; asking takes time of the clock."""

    def __init__(self, *, rate: float = 1e8, noise: Callable[[Case], float] = lambda case: 0.02) -> None:
        self.rate, self.noise = rate, noise
        self.now_s = 0.0
        self.asked: list[tuple[Case, int]] = []
        self.blocks: list[int] = []
        self.disturbed: dict[int, float] = {}
        """Factor of the time of one sample, by its number."""
        self._random = random.Random(5)

    def __call__(self, case: Case, *, calls: int, block: int) -> Together:
        factor = math.exp(self._random.gauss(0, self.noise(case))) * self.disturbed.get(len(self.asked), 1.0)
        length_s = calls * (1e-4 + case.size_bytes / self.rate) * factor
        begin_ns = round(1e9 * self.now_s)
        self.asked.append((case, calls))
        self.blocks.append(block)
        self.now_s += length_s + TURN_S
        times = {"begin_ns": begin_ns, "end_ns": begin_ns + round(1e9 * length_s), "clock_error_ns": 0}
        return [
            CommSample(collective=case.collective, size_bytes=case.size_bytes, calls=calls, wrong_elements=0, **times)
            for _ in range(2)
        ]

    def sampling(self, budget_s: float | None = None, samples: int | None = None, names: str = "broadcast") -> Sampling:
        def left_s() -> float:
            return math.inf if budget_s is None else budget_s - self.now_s

        cases = [Case(name, size) for name in names.split() for size in SIZES]
        return Sampling(cases, self, samples=samples, left_s=left_s)


def counts(sampling: Sampling) -> dict[Case, int]:
    """Samples of each case."""
    return {case: len(known.samples) for case, known in sampling.known.items()}


def test_the_noisier_size_gets_more_samples_and_the_budget_is_kept() -> None:
    noisy = Case("gather", SIZES[2])
    link = Link(noise=lambda case: 0.3 if case == noisy else 0.005)
    sampling = link.sampling(budget_s=12.0, names="broadcast gather")
    sampling.run()
    found = counts(sampling)
    assert min(found.values()) >= MIN_SAMPLES
    assert found[noisy] > 2 * max(number for case, number in found.items() if case != noisy)
    assert 11.8 <= link.now_s <= 12.1


def test_equal_noise_shares_the_time_evenly_and_no_size_is_taken_twice_in_a_row() -> None:
    link = Link()
    sampling = link.sampling(budget_s=20.0, names="broadcast gather")
    sampling.run()
    found = counts(sampling)
    assert max(found.values()) <= 4 * min(found.values())
    later = [case for (case, _), block in zip(link.asked, link.blocks, strict=True) if block > 3]
    assert later
    assert all(a != b for a, b in itertools.pairwise(later))


def test_so_many_samples_as_asked_for_however_long_it_takes() -> None:
    link = Link(noise=lambda case: 0.2, rate=1e7)
    sampling = link.sampling(samples=5)
    taken = sampling.run()
    assert set(counts(sampling).values()) == {5}
    assert len(taken) == 5 * len(SIZES)
    assert [each[0].size_bytes for each in taken] == sorted(each[0].size_bytes for each in taken)


def test_a_number_of_samples_in_a_budget_ends_with_whichever_comes_first() -> None:
    quick, slow = Link(), Link(rate=1e6)
    few = quick.sampling(budget_s=10.0, samples=3)
    few.run()
    assert set(counts(few).values()) == {3}
    assert quick.now_s < 4
    slow.sampling(budget_s=2.0, samples=3).run()
    assert slow.now_s < 2.2


@pytest.mark.parametrize("budget_s", [1.2, 3.0, 6.0])
def test_a_slow_link_gets_single_calls_and_sizes_that_do_not_fit_are_left_out(budget_s: float) -> None:
    link = Link(rate=1e6)  # the largest size takes a second
    sampling = link.sampling(budget_s)
    taken = sampling.run()
    assert link.now_s <= budget_s + 0.1
    assert {calls for case, calls in link.asked if case.size_bytes > 2e5} <= {1}
    left = {case.size_bytes for case in sampling.left_out}
    assert left == (set(SIZES[-1:]) if budget_s == 1.2 else set())
    # What was called once only still has that call as its sample.
    assert {each[0].size_bytes for each in taken} == set(SIZES) - left


@pytest.mark.parametrize("budget_s", [2.0, 4.0, 8.0, 20.0])
@pytest.mark.parametrize("rate", [1e7, 1e8, 1e9])
def test_each_size_that_is_timed_has_seven_samples_or_is_one_long_call(budget_s: float, rate: float) -> None:
    """Samples get shorter, then sizes fewer; the smallest and the largest that there is time for stay."""
    link = Link(rate=rate)
    sampling = link.sampling(budget_s, names="broadcast gather all-reduce")
    taken = sampling.run()
    assert link.now_s <= budget_s + 0.05
    found = Counter(Case(each[0].collective, each[0].size_bytes) for each in taken)
    few = [case for case, number in found.items() if number < MIN_SAMPLES]
    calls = {Case(each[0].collective, each[0].size_bytes): each[0].calls for each in taken}
    assert {calls[case] for case in few} <= {1}
    assert all(call_s(sampling.known[case].kept[0]) > ENOUGH * SHORT_SAMPLES_S[-1] for case in few)
    assert len(few) <= len(found) / 3
    for name in ("broadcast", "gather", "all-reduce"):
        sizes = sorted(case.size_bytes for case in found if case.collective == name)
        assert len(sizes) >= 3
        assert (sizes[0], sizes[-1]) == (SIZES[0], SIZES[-1])
    assert set(sampling.left_out) == set(sampling.cases) - set(found)
    if budget_s >= 8 and rate > 1e7:
        assert not few
        assert not sampling.left_out


@pytest.mark.parametrize(
    ("count", "order"), [(0, []), (1, [0]), (2, [1, 0]), (3, [2, 0, 1]), (6, [5, 0, 2, 1, 3, 4]), (4, [3, 0, 1, 2])]
)
def test_ends_come_first_and_then_the_middle(count: int, order: list[int]) -> None:
    assert coarse_to_fine(count) == order


def test_what_is_above_a_size_that_was_left_out_is_not_tried() -> None:
    link = Link(rate=2e4)
    sampling = link.sampling(budget_s=1.0)
    sampling.run()
    assert [case.size_bytes for case in sampling.left_out] == SIZES[-len(sampling.left_out) :]
    assert len(sampling.left_out) >= 3
    assert link.now_s < 1.2


def test_samples_are_as_long_as_the_budget_permits() -> None:
    lengths = {}
    for budget_s in (0.6, 8.0):
        link = Link(noise=lambda case: 0.0)
        taken = link.sampling(budget_s, samples=3).run()
        small = [each for each in taken if each[0].size_bytes == SIZES[4]]
        lengths[budget_s] = {round(each[0].calls * call_s(each), 2) for each in small}
    assert max(lengths[0.6]) <= SHORT_SAMPLES_S[0] * 1.1
    assert min(lengths[8.0]) >= SAMPLE_S * 0.9


def test_a_disturbed_first_call_makes_no_short_samples() -> None:
    link = Link(noise=lambda case: 0.0)
    link.disturbed = {3: 100.0}  # the first call of the fourth size lasts as long as a sample should
    sampling = link.sampling(samples=3)
    sampling.run()
    known = sampling.known[Case("broadcast", SIZES[3])]
    assert len(known.samples) == 3
    assert min(each[0].calls * call_s(each) for each in known.samples) >= ENOUGH * SAMPLE_S * 0.9


def test_the_first_turn_of_each_size_is_one_call_and_each_round_is_a_block() -> None:
    link = Link()
    sampling = link.sampling(samples=2, names="gather broadcast")
    heard: Counter[int] = Counter()
    sampling._heard = lambda each: heard.update([each.rounds])
    sampling.run()
    first = [link.asked[number] for number, block in enumerate(link.blocks) if block == 0]
    assert list(dict.fromkeys(case for case, _ in first)) == sampling.cases
    assert {calls for _, calls in first} == {1}
    assert link.blocks == sorted(link.blocks)
    assert set(link.blocks) == {0, 1, 2}
    assert sum(heard.values()) == len(link.asked) + 3
