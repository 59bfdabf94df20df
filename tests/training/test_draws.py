"""Steps that are drawn: the measured ones, with the same seed the same, and never less than nothing."""

from itertools import islice, pairwise

import numpy as np
import pytest

from worldsize.results.replay import PHASES, ReplayedCell
from worldsize.training.draws import Drawn, Draws, decomposed

FORWARD = PHASES.index("forward")


def cell(ranks: int = 2, blocks: tuple[int, ...] = (3, 4, 5)) -> ReplayedCell:
    """Times that tell rank and step: forward is 1,000 × rank + step, in µs."""
    steps = sum(blocks)
    rows = [[[10_000 + 1_000 * rank + step for step in range(steps)] for _ in PHASES] for rank in range(ranks)]
    return made(rows, blocks)


def made(times_us: object, blocks: tuple[int, ...]) -> ReplayedCell:
    return ReplayedCell.model_validate(
        {"source": "ddp-w2-b32", "source_world_size": 2, "blocks": blocks, "times_us": times_us}
    )


def taken(draws: Draws, count: int) -> list[Drawn]:
    return list(islice(iter(draws), count))


def forwards(draws: Draws, count: int = 40) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.array([step.forward_s * 1e6 for step in taken(draws, count)])


def test_the_same_seed_draws_the_same_and_another_one_others() -> None:
    first, again, other = (taken(Draws(cell(), 1, 4, seed), 50) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_a_measured_rank_replays_its_own_steps_and_all_ranks_the_same_ones() -> None:
    zero, one = forwards(Draws(cell(), 0, 2, 0)), forwards(Draws(cell(), 1, 2, 0))
    assert one - zero == pytest.approx(1_000)
    assert {*zero.round()} <= {10_000 + step for step in range(12)}


def test_steps_of_a_block_stay_together() -> None:
    found = forwards(Draws(cell(), 0, 2, 0), 200).round() - 10_000
    begins = {0, 3, 7}
    assert all(after == before + 1 or after in begins for before, after in pairwise(found))


def test_each_measured_block_comes_once_before_any_comes_again() -> None:
    found = forwards(Draws(cell(), 0, 2, 0), 36).round()
    for begin in (0, 12, 24):
        assert sorted(found[begin : begin + 12] - 10_000) == [*range(12)]


def test_more_ranks_than_were_measured_have_the_measured_mean_and_spread() -> None:
    noise = np.random.default_rng(0).normal(0, 300, (2, len(PHASES), 400)).round().astype(int) + 10_000
    noise[1] += 1_000
    drawn = made(noise.tolist(), (10,) * 40)
    found = np.array([forwards(Draws(drawn, rank, 8, 0), 2_000) for rank in range(8)])
    assert found[::2].mean() == pytest.approx(10_000, abs=40)
    assert found[1::2].mean() == pytest.approx(11_000, abs=40)
    assert found.std(axis=1).mean() == pytest.approx(300, rel=0.15)


def test_what_ranks_share_they_share() -> None:
    """A step that is long on all ranks is long on all drawn ones, in the same step."""
    times = np.full((2, len(PHASES), 20), 10_000)
    times[:, :, 7] += 5_000
    drawn = made(times.tolist(), (20,))
    ranks = [forwards(Draws(drawn, rank, 6, 0), 60) for rank in range(6)]
    assert ranks[0].max() > 14_000
    assert all((rank == ranks[0]).all() for rank in ranks)


def test_the_parts_add_up_to_what_was_measured() -> None:
    measured = np.random.default_rng(0).normal(0.02, 0.003, (3, len(PHASES), 30))
    shared, own, rest = decomposed(measured)
    assert shared + own[:, :, None] + rest == pytest.approx(measured)
    assert own.sum(axis=0) == pytest.approx(0, abs=1e-12)
    alone = measured[:1]
    shared, own, rest = decomposed(alone)
    assert shared + own[:, :, None] + rest == pytest.approx(alone)
    assert np.ptp(shared, axis=1) == pytest.approx(0)


def test_a_planted_delay_is_computed_in_each_step() -> None:
    usual, late = Draws(cell(), 1, 4, 0), Draws(cell(), 1, 4, 0, delay_s=0.02)
    for plain, slow in zip(taken(usual, 30), taken(late, 30), strict=True):
        assert slow.forward_s - plain.forward_s == pytest.approx(0.02)
        assert slow.backward_s == plain.backward_s


def test_no_time_is_below_zero() -> None:
    times = np.random.default_rng(0).integers(0, 5, (2, len(PHASES), 40))
    drawn = made(times.tolist(), (40,))
    assert min(min(step) for step in taken(Draws(drawn, 5, 16, 0), 200)) >= 0
    assert Draws(drawn, 0, 1, 0).usual.forward_s == pytest.approx(times[:, FORWARD].mean() / 1e6)
