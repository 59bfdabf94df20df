"""What is a number, and the marks around it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worldsize.documents.numbers import is_number, unbolded, unmarked

NUMBERS = [
    *(
        "1",
        "25.86",
        "1,024",
        "11,689,512",
        "-3",
        "−1.5",
        ".5",
        "1e-4",
        "3.2E+5",
        "100.",
        "97%",
        "97.5 %",
        "3.80x",
        "3.97 ×",
    ),
    *(
        "12 ms",
        "16 GB/s",
        "340 img/s",
        "2.5h",
        "56K",
        "1.2 ± 0.3",
        "1.2±0.3%",
        "14.73 (1.00)",
        "(0.5)",
        "~5",
        "<1",
        "≈ 3 s",
    ),
    *("10^6", "2^20", "1.5×10^3", "12:30", "1:02:03.5", "1m 18.0s", "2h 5m", "1 024", "12,5"),
]
WORDS = [
    "",
    "-",
    "GPUs",
    "1-GPU",
    "8 GPUs",
    "32 per GPU",
    "batch_32_time",
    "OOM",
    "ResNet-18",
    "T4",
    "1x8x1",
    "v1.5",
    "fp32",
]


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers(text: str) -> None:
    assert is_number(text)


@pytest.mark.parametrize("text", WORDS)
def test_words(text: str) -> None:
    assert not is_number(text)


@pytest.mark.parametrize("mark", ["*", "**", "†", "‡", " †", "^a", "^*", "^[1]", "[2]", "¹", "ᵃ", "*†", "^12"])
@pytest.mark.parametrize("number", ["12.3", "3.80x", "1,024", "97%", "12 ms"])
def test_footnote_marks_are_taken_off_numbers(number: str, mark: str) -> None:
    assert unmarked(f"{number}{mark}") == number


@pytest.mark.parametrize(
    "text", ["2^20", "10^6", "10³", "1.5×10^3", "10^-3", "GPUs*", "Time^a", "*", "12.3 abc*", "T_1"]
)
def test_powers_and_words_stay(text: str) -> None:
    assert unmarked(text) == text


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9))
def test_no_digit_is_lost(value: object) -> None:
    assert is_number(str(value))
    assert unmarked(str(value)) == str(value)
    assert unmarked(f"{value}*") == str(value)


def test_bold() -> None:
    assert unbolded("**3.5**") == ("3.5", True)
    assert unbolded("__3.5__") == ("3.5", True)
    assert unbolded("*3.5*") == ("3.5", False)
    assert unbolded("`a`") == ("a", False)
    assert unbolded("**a** b **c**") == ("**a** b **c**", False)
    assert unbolded("3.5**") == ("3.5**", False)
