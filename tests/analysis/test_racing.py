"""Races with planted rates: the fastest is hardly ever dropped, what is surely slower is dropped soon."""

import numpy as np
import pytest

from worldsize.analysis.racing import ERROR_RATE, FIRST_LOOK, Race, looks, mean_and_half
from worldsize.analysis.statistics import Floats

Samples = dict[str, dict[tuple[int, int], Floats]]


def raced(
    step_s: dict[str, float], noise: float, blocks: int, seed: int, *, batches: dict[str, int] | None = None
) -> tuple[Race, Samples, dict[str, int]]:
    """A race over some blocks, on a machine whose speed wanders for all alike; where each cell was dropped."""
    generator = np.random.default_rng(seed)
    race = Race(batches or dict.fromkeys(step_s, 8))
    samples: Samples = {name: {} for name in step_s}
    dropped: dict[str, int] = {}
    machine = 1.0
    for block in range(blocks):
        machine *= float(np.exp(0.2 * generator.standard_normal()))
        for name, true_s in step_s.items():
            if name not in race.out:
                times = true_s * machine * np.exp(noise * generator.standard_normal(3) / np.sqrt(3))
                samples[name][0, block] = times * np.exp(noise * generator.standard_normal())
        race.look(samples)
        for name in race.out - dropped.keys():
            dropped[name] = block + 1
    return race, samples, dropped


def test_the_fastest_is_dropped_no_more_often_than_promised() -> None:
    """One of four is faster by 1 %, far less than the noise, so that chance has its say at every look."""
    true_s = {"a": 0.099, "b": 0.1, "c": 0.1, "d": 0.1}
    lost = sum("a" in raced(true_s, noise=0.05, blocks=40, seed=seed)[0].out for seed in range(200))
    # With the promised chance more than 18 of 200 have a probability below 0.01.
    assert lost <= 18
    assert ERROR_RATE == 0.05


def test_what_is_surely_slower_is_dropped_soon() -> None:
    true_s = {"fast": 0.1, "near": 0.1, "slow": 0.14}
    found = [raced(true_s, noise=0.03, blocks=15, seed=seed)[2].get("slow") for seed in range(50)]
    assert sum(at is not None and at <= 11 for at in found) >= 45


def test_the_speed_of_the_machine_is_no_difference_between_cells() -> None:
    """It wanders by 20 % from block to block, and cells that differ by 2 % are told apart."""
    _, _, dropped = raced({"fast": 0.1, "slow": 0.102}, noise=0.002, blocks=20, seed=1)
    assert set(dropped) == {"slow"}


def test_rates_and_not_steps_are_compared() -> None:
    race, samples, dropped = raced(
        {"small": 0.1, "large": 0.15}, noise=0.01, blocks=12, seed=2, batches={"small": 8, "large": 16}
    )
    assert set(dropped) == {"small"}
    assert race.best(samples, ["small", "large"]) == "large"


def test_cells_that_are_alike_are_known_to_be() -> None:
    race, samples, _ = raced({"a": 0.1, "b": 0.1}, noise=0.01, blocks=20, seed=3)
    assert race.left == ["a", "b"]
    assert race.tied(samples, within=0.03)
    assert not race.tied(samples, within=0.0001)


def test_nothing_is_dropped_before_the_first_look() -> None:
    assert raced({"a": 0.1, "b": 0.5}, noise=0.01, blocks=FIRST_LOOK - 1, seed=4)[2] == {}
    assert looks(30) == [5, 6, 9, 12, 16, 22, 30]


@pytest.mark.parametrize("count", [5, 12, 40])
def test_the_interval_of_a_trimmed_mean_covers_what_it_says(count: int) -> None:
    generator = np.random.default_rng(count)
    held = 0
    for _ in range(2000):
        mean, half = mean_and_half(generator.standard_normal(count), 0.025)
        held += abs(mean) <= half
    assert 0.93 <= held / 2000 <= 0.97
