import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.analysis.numbers import estimate_text, number_text, percent_text
from worldsize.results.records import Estimate


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.8, "1.80"),
        (512.4, "512"),
        (9.996, "10.0"),
        (99.96, "100"),
        (999.6, "1,000"),
        (12345.6, "12,300"),
        (0.04567, "0.0457"),
        (0.0001, "0.000100"),
        (0.0000123, "1.23e-05"),
        (-0.5, "−0.500"),
        (0.0, "0"),
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
    ],
)
def test_three_significant_digits(value: float | None, expected: str) -> None:
    assert number_text(value) == expected


@given(st.floats(1e-3, 1e9))
def test_text_is_within_half_a_unit_of_the_third_digit(value: float) -> None:
    assert float(number_text(value).replace(",", "")) == pytest.approx(value, rel=0.00501)


def test_an_estimate_shows_its_interval_only_if_it_has_one() -> None:
    assert estimate_text(Estimate(value=0.5, low=0.4, high=0.6, samples=3), 1e3) == "500 [400, 600]"
    assert estimate_text(Estimate(value=0.5, samples=1), 1e3) == "500"


def test_shares_are_in_percent() -> None:
    assert percent_text(0.0812) == "8.12 %"
    assert percent_text(None) == "–"
