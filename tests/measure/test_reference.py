"""The short computation beside the steps outlasts a slice of the scheduler on any core (method.md §8)."""

from collections.abc import Iterator

import pytest

from worldsize.measure.reference import LEAST_S, PRODUCTS, Reference


class Planted(Reference):
    """A computation whose products take a known time each (s), in turn."""

    def __init__(self, *product_s: float) -> None:
        super().__init__(1)
        self.product_s: Iterator[float] = iter(product_s)
        self.counts: list[int] = []

    def _took_s(self, worker: int, count: int) -> float:
        self.counts.append(count)
        return count * next(self.product_s)


@pytest.mark.parametrize("product_s", [1e-5, 1.7e-4, LEAST_S / PRODUCTS, 1e-3])
def test_as_many_products_as_outlast_a_slice(product_s: float) -> None:
    planted = Planted(*3 * [product_s])
    assert [planted.time_s() for _ in range(2)] == pytest.approx(2 * [PRODUCTS * product_s])
    # The first time the rate is not known: what was too short is made again, and does not count.
    assert planted.counts[0] == PRODUCTS
    assert all(count * product_s >= LEAST_S * (1 - 1e-9) for count in planted.counts[1:])
    assert len(planted.counts) == 2 + (PRODUCTS * product_s < LEAST_S)


def test_a_core_that_turns_out_quicker_gets_more_products() -> None:
    planted = Planted(4e-4, 1.7e-4, 2e-4)
    assert [planted.time_s() for _ in range(2)] == pytest.approx([PRODUCTS * each for each in (4e-4, 2e-4)])
    assert planted.counts[-1] * 1.7e-4 >= LEAST_S


def test_a_slow_computation_is_made_again_with_twice_as_many_and_the_quicker_rate_counts() -> None:
    planted = Planted(4e-4, 8e-4, 5e-4, 8e-4, 9e-4)
    times = [planted.time_s() for _ in range(3)]
    assert times == pytest.approx([PRODUCTS * each for each in (4e-4, 5e-4, 8e-4)])
    assert planted.counts == [PRODUCTS, PRODUCTS, 2 * PRODUCTS, PRODUCTS, 2 * PRODUCTS]
