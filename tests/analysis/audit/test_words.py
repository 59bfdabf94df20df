"""What the words around a table say is held against it, and tells how its ratios are meant."""

import pytest

from made_audits import found, rules, table
from worldsize.analysis.audit.overrides import Overrides

TIMES = "GPUs, Time (s) / 1, 40 / 2, 25 / 4, 16"
NETWORK = "ResNet-50, 25.6M parameters, fp32; each all-reduce exchanges"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (f"{NETWORK} 0.0954 GB.", [("bytes-unit", "FAIL")]),
        (f"{NETWORK} 0.0954 GiB.", []),
        (f"{NETWORK} 0.1024 GB.", []),
        ("It is 3.8 times faster on 4 GPUs.", [("claim", "FAIL")]),
        ("It is 60 % faster on 2 GPUs.", []),
        ("It is 90 % faster on 4 GPUs.", [("claim", "FAIL")]),
        ("It stays within 40 % of linear.", []),
        ("It stays within 2.5 % of linear.", [("claim", "FAIL")]),
        ("It is 2.5 times faster on 4 GPUs.", []),
        ("It reaches 95 % efficiency on 4 GPUs.", [("claim", "FAIL")]),
    ],
)
def test_words_are_held_against_the_table(words: str, expected: list[tuple[str, str]]) -> None:
    assert found(table(TIMES, words)) == expected


@pytest.mark.parametrize(
    ("words", "fires"),
    [
        ("Training scales linearly.", True),
        ("It is far from linear scaling.", False),
        ("It scales sub-linearly.", False),
    ],
)
def test_linear_is_what_the_table_shows(words: str, fires: bool) -> None:
    assert ("claim" in rules(table("GPUs, Speedup / 1, 1.00 / 2, 1.60 / 4, 2.50", words))) is fires


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("repeats", "Medians of 5 runs."),
        ("hardware", "On V100."),
        ("precision", "In fp16."),
        ("batch", "Batch size 32 per GPU."),
        ("loader", "Synthetic data."),
        ("software", "With PyTorch 2.6."),
        ("accuracy", "The loss is the same."),
    ],
)
def test_what_is_missing_is_no_longer_so_when_it_is_said(what: str, words: str) -> None:
    assert f"missing-{what}" in rules(table(TIMES))
    assert f"missing-{what}" not in rules(table(TIMES, words))


N_TWICE = "GPUs, {}, Speedup / 1, 40.0, 1.00 / 2, 44.4, 1.80 / 4, 51.6, 3.10"


@pytest.mark.parametrize(
    ("heading", "words", "overrides", "expected"),
    [
        ("Epoch time (s)", "", Overrides(), "FAIL"),
        ("Time (s)", "", Overrides(), "EXPLAIN"),
        ("Step time (s)", "Batch size 32 per GPU.", Overrides(), None),
        ("Step time (s)", "Global batch size 256.", Overrides(), "FAIL"),
        ("Time (s)", "", Overrides(scaling="weak"), None),
        ("Time (s)", "", Overrides(scaling="strong"), "FAIL"),
        ("Time (s)", "", Overrides(columns={"Time (s)": "epoch_time:s"}), "FAIL"),
        ("Step time (s)", "", Overrides(batch_per="worker"), None),
    ],
)
def test_n_times_the_ratio_is_right_where_the_work_grows(
    heading: str, words: str, overrides: Overrides, expected: str | None
) -> None:
    wanted = [("speedup", expected)] if expected else []
    assert found(table(N_TWICE.format(heading), words), overrides) == wanted


def test_rounding_and_cutting_off_are_no_errors() -> None:
    for speedups in ("1.00, 1.66, 2.72", "1.00, 1.67, 2.73", "1.0, 1.6, 2.7", "1, 1.7, 2.7"):
        one, two, four = speedups.split(", ")
        assert found(table(f"GPUs, Time (s), Speedup / 1, 30, {one} / 2, 18, {two} / 4, 11, {four}")) == []


def test_samples_that_are_given_count() -> None:
    steps = "GPUs, Batch per GPU, Steps / 1, 50, 1000 / 2, 50, 500 / 4, 50, 500"
    assert found(table(steps)) == []
    assert found(table(steps), Overrides(samples=50_000)) == [("steps-per-epoch", "FAIL")]


def test_a_batch_is_no_data_set() -> None:
    words = "ResNet-50 on ImageNet with a per-GPU batch size of 256 images; each step takes 512 samples per node."
    assert found(table("GPUs, images/s, Speedup / 1, 398, 1.00 / 8, 2972, 7.47", words)) == []
