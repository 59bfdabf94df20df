"""Workers that share a model have one batch together, and names of accelerators are no counts."""

import pytest

from made_audits import audited, found, table

PARALLEL = (
    "GPUs, {} Micro batch, Accumulation, Global batch, Tokens/s / 64, {} 1, 32, {}, 250000 / 128, {} 1, 32, {}, 496000"
)


@pytest.mark.parametrize(
    ("columns", "first", "second"),
    [("DP, TP, PP,", "4, 8, 2,", "8, 8, 2,"), ("TP, PP,", "8, 2,", "8, 2,"), ("Tensor parallel size,", "16,", "16,")],
)
def test_a_global_batch_counts_replicas(columns: str, first: str, second: str) -> None:
    assert found(table(PARALLEL.format(columns, first, 128, second, 256))) == []
    assert found(table(PARALLEL.format(columns, first, 128, second, 512))) == [("global-batch", "FAIL")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("TP=8, PP=2.", []),
        ("3D parallelism with tensor-parallel groups.", []),
        ("TP=4, PP=2.", [("global-batch", "FAIL")] * 2),
    ],
)
def test_words_say_how_many_share_a_model(words: str, expected: list[tuple[str, str]]) -> None:
    assert found(table(PARALLEL.format("", "", 128, "", 256), words)) == expected


@pytest.mark.parametrize("accelerator", ["K80", "V100", "GH200", "RTX 4090"])
def test_accelerators_that_are_compared_are_no_counts(accelerator: str) -> None:
    rows = f"GPUs, A100, {accelerator} / 1, 410, 142 / 2, 800, 284 / 4, 1560, 569"
    said = audited(table(rows, "Throughput (images/s)")).readings[0]
    assert {str(fact.quantity) for fact in said.facts if fact.place.column} == {"throughput"}


def test_an_accelerator_alone_counts() -> None:
    assert found(table("H100, images/s, Speedup / 1, 410, 1.00 / 2, 800, 1.95 / 4, 1560, 3.20")) == [
        ("speedup", "FAIL")
    ]
