"""Sentences beside a table: those that claim something of it, and those that speak of something else."""

import pytest

from made_audits import found, table

ROWS = "GPUs, Time (s), Speedup / 1, 400, 1.00 / 2, 212, 1.89 / 4, 112, 3.57 / 8, 61, 6.56"


@pytest.mark.parametrize(
    "sentence",
    [
        "It is 2.4 times faster than TensorFlow on 8 GPUs.",
        "8 GPUs are 150 times faster than the CPU.",
        "Compared with the results of [12] we are 1.3 times faster on 8 GPUs.",
        "In previous work a speed-up of 5.2 on 8 GPUs was reported.",
        "Amdahl's law predicts a speed-up of 7.9 on 8 GPUs.",
        "The ideal speed-up is 8 on 8 GPUs.",
        "Data loading is 3.1 times faster on 8 GPUs.",
        "Inference is 7.9 times faster on 8 GPUs.",
        "With gradient compression we reach an efficiency of 97 % on 8 GPUs.",
        "The second run on 8 GPUs was 3 % slower.",
        "From 4 to 8 GPUs the speed-up is 1.84.",
        "Eight GPUs are 6.6 times faster than one.",
        "2 GPUs × 212 s = 424 GPU-seconds, efficiency 94%.",
    ],
)
def test_what_a_sentence_says_of_something_else_is_no_claim(sentence: str) -> None:
    assert found(table(ROWS, sentence)) == []


@pytest.mark.parametrize(
    "sentence",
    [
        "Eight GPUs are 7.6 times faster than one.",
        "It is 7.6 times faster on 8 GPUs than on a single GPU.",
        "2 GPUs × 212 s = 424 GPU-seconds, efficiency 99%.",
        "The efficiency falls to 95 % on 8 GPUs.",
    ],
)
def test_what_a_sentence_says_of_the_table_is_held_against_it(sentence: str) -> None:
    assert found(table(ROWS, sentence)) == [("claim", "FAIL")]


VARIANTS = "GPUs, DDP (s), FSDP (s) / 1, 88.0, 91.2 / 8, 15.9, 12.1"


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("FSDP is 7.5 times faster on 8 GPUs.", []),
        ("DDP is 5.5 times faster on 8 GPUs.", []),
        ("DDP is 7.5 times faster on 8 GPUs.", [("claim", "SUSPECT")]),
    ],
)
def test_a_sentence_that_names_a_variant_is_of_that_one(sentence: str, expected: list[tuple[str, str]]) -> None:
    assert found(table(VARIANTS, sentence)) == expected


@pytest.mark.parametrize(("printed", "expected"), [("900", []), ("7000", [("claim", "SUSPECT")])])
def test_the_rate_of_one_worker_is_one_of_the_table(printed: str, expected: list[tuple[str, str]]) -> None:
    rows = "GPUs, Tokens/s / 64, 56000 / 128, 110000 / 256, 216000"
    assert found(table(rows, f"It makes {printed} tokens/s per GPU.")) == expected


@pytest.mark.parametrize(("printed", "expected"), [("6.0", []), ("7.2", [("claim", "SUSPECT")])])
def test_an_average_is_that_of_the_rows(printed: str, expected: list[tuple[str, str]]) -> None:
    rows = "Model, 1 GPU, 8 GPUs, Speedup / A, 2401, 9820, 4.09 / B, 172, 1101, 6.40 / C, 301, 2288, 7.60"
    assert found(table(rows, f"On average we are {printed} times faster on 8 GPUs.")) == expected


def test_a_row_of_one_worker_is_the_base_of_all_variants() -> None:
    rows = "Method, GPUs, s/epoch / Single GPU, 1, 31.2 / DP, 4, 20.6 / DDP, 4, 8.7"
    assert found(table(rows, "DDP on four GPUs is 3.6 times as fast as one GPU.")) == []
    assert found(table(rows, "DDP on four GPUs is 4.6 times as fast as one GPU.")) == [("claim", "FAIL")]
