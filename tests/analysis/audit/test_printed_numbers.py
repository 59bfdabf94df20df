"""A number stands for the interval that its last digit allows."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.analysis.audit.numbers import Span, all_printed, printed, whole_number


@pytest.mark.parametrize(
    ("text", "value", "low", "high", "unit"),
    [
        ("1,200", 1200, 1150, 1300, None),
        ("1200", 1200, 1150, 1300, None),
        ("1,234", 1234, 1233.5, 1235, None),
        ("40", 40, 39.5, 41, None),
        ("0.044", 0.044, 0.0435, 0.045, None),
        ("1.80", 1.8, 1.795, 1.81, None),
        (".5", 0.5, 0.45, 0.6, None),
        ("95 %", 95, 94.5, 96, "%"),
        ("95.3%", 95.3, 95.25, 95.4, "%"),
        ("1.9×", 1.9, 1.85, 2.0, "×"),
        ("1.9x", 1.9, 1.85, 2.0, "×"),
        ("1:23", 83, 82.5, 84, "s"),
        ("1:02:03", 3723, 3722.5, 3724, "s"),
        ("1h 5m 3s", 3903, 3902.5, 3904, "s"),
        ("3.4k", 3400, 3350, 3500, None),
        ("40k", 40_000, 39_500, 41_000, None),
        ("11.7M", 11.7e6, 11.65e6, 11.8e6, None),
        ("1e3", 1000, 500, 2000, None),
        ("1.2e3", 1200, 1150, 1300, None),
        ("1.5 × 10^4", 15_000, 14_500, 16_000, None),
        ("−5", -5, -6, -4.5, None),
        ("-0.25", -0.25, -0.26, -0.245, None),
        ("~12.5 ms", 12.5, 12.45, 12.6, "ms"),
        ("46 MB", 46, 45.5, 47, "MB"),
        ("0.73 GB/s", 0.73, 0.725, 0.74, "GB/s"),
    ],
)
def test_a_number_is_rounded_or_cut_off(text: str, value: float, low: float, high: float, unit: str | None) -> None:
    number = printed(text)
    assert number is not None
    assert number.value == pytest.approx(value)
    assert number.span.low == pytest.approx(low)
    assert number.span.high == pytest.approx(high)
    assert (number.unit.name if number.unit else None) == unit


def test_a_spread_belongs_to_the_number_before_it() -> None:
    [number] = all_printed("12.3 ± 0.4")
    assert (number.value, number.spread) == (12.3, 0.4)
    [number] = all_printed("12.3 +/- 0.4 ms")
    assert (number.spread, number.unit and number.unit.name) == (0.4, "ms")


def test_an_entry_may_have_two_numbers() -> None:
    first, second = all_printed("25.86 (1.40×)")
    assert (first.value, first.unit) == (25.86, None)
    assert (second.value, second.unit and second.unit.name) == (1.4, "×")


@pytest.mark.parametrize("text", ["", "–", "n/a", "V100", "OOM", "ResNet"])
def test_words_are_no_numbers(text: str) -> None:
    assert printed(text) is None


@pytest.mark.parametrize(("text", "count"), [("1,024", 1024), ("4k", 4000), ("8", 8), ("2.5", None), ("many", None)])
def test_counts(text: str, count: int | None) -> None:
    assert whole_number(text) == count


@given(st.floats(0.001, 1e6), st.integers(0, 6))
def test_what_rounds_or_is_cut_to_a_text_lies_in_its_interval(value: float, digits: int) -> None:
    cut = math.floor(value * 10**digits) / 10**digits
    for text in (f"{value:.{digits}f}", f"{cut:.{digits}f}"):
        number = printed(text)
        assert number is not None
        assert number.span.around(value)


@given(st.text(max_size=20))
def test_any_text_is_read_without_an_error(text: str) -> None:
    for number in all_printed(text):
        assert number.span.low <= number.span.high


def test_arithmetic_keeps_every_pair() -> None:
    one, two = Span(1, 2), Span(-3, 4)
    assert one + two == Span(-2, 6)
    assert one - two == Span(-3, 5)
    assert one * two == Span(-6, 8)
    assert two / one == Span(-3, 4)
    assert one / two == Span(-math.inf, math.inf), "of a divisor that may be 0 nothing is known"
    assert Span(0, 1).meets(Span(1, 2))
    assert not Span(0, 1).meets(Span(1.1, 2))
