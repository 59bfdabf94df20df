"""Each rule fires on a small table that is wrong, and is silent on the same table put right."""

from typing import NamedTuple

import pytest

from made_audits import found, rules, table
from worldsize.analysis.audit.rules import RULES


class Case(NamedTuple):
    rule: str
    verdict: str
    wrong: str
    right: str
    words: str = ""
    also: tuple[tuple[str, str], ...] = ()


HEADING = "GPUs, Time (s), Speedup"
CASES = (
    Case(
        "speedup",
        "FAIL",
        "GPUs, Time (s), Speedup / 1, 40, 1.00 / 2, 25, 1.90 / 4, 16, 2.50",
        "GPUs, Time (s), Speedup / 1, 40, 1.00 / 2, 25, 1.60 / 4, 16, 2.50",
    ),
    Case(
        "efficiency",
        "FAIL",
        "GPUs, Time (s), Efficiency / 1, 40, 100% / 2, 25, 80% / 4, 16, 73%",
        "GPUs, Time (s), Efficiency / 1, 40, 100% / 2, 25, 80% / 4, 16, 62%",
    ),
    Case(
        "contradiction",
        "SUSPECT",
        f"{HEADING} / 1, 38, 1.00 / 2, 67, 0.57 / 4, 121, 0.31 // {HEADING} / 1, 38, 1.00 / 2, 67, 1.13 / 4, 121, 1.26",
        f"{HEADING} / 1, 38, 1.00 / 2, 67, 0.57 / 4, 121, 0.31 // {HEADING} / 1, 39, 1.00 / 2, 67, 0.58 / 4, 122, 0.32",
        also=(("speedup", "EXPLAIN"),),
    ),
    Case(
        "rate-total",
        "FAIL",
        "GPUs, images/s per GPU, total images/s / 1, 410, 410 / 2, 396, 792 / 4, 390, 1950",
        "GPUs, images/s per GPU, total images/s / 1, 410, 410 / 2, 396, 792 / 4, 390, 1560",
    ),
    Case(
        "rate-time",
        "FAIL",
        "GPUs, Epoch time (s), images/s / 1, 50.0, 1000 / 2, 30.0, 1667 / 4, 20.0, 4500",
        "GPUs, Epoch time (s), images/s / 1, 50.0, 1000 / 2, 30.0, 1667 / 4, 20.0, 2500",
        "CIFAR-10",
    ),
    Case(
        "global-batch",
        "FAIL",
        "GPUs, Batch per GPU, Global batch / 1, 64, 64 / 2, 64, 128 / 4, 64, 512",
        "GPUs, Batch per GPU, Global batch / 1, 64, 64 / 2, 64, 128 / 4, 64, 256",
    ),
    Case(
        "steps-per-epoch",
        "FAIL",
        "GPUs, Batch per GPU, Steps / 1, 50, 1000 / 2, 50, 500 / 4, 50, 500",
        "GPUs, Batch per GPU, Steps / 1, 50, 1000 / 2, 50, 500 / 4, 50, 250",
        "CIFAR-10",
    ),
    Case(
        "epoch-steps",
        "FAIL",
        "GPUs, Step time (ms), Epoch time (s), Batch per GPU / 1, 40, 41, 50 / 2, 44, 11, 50",
        "GPUs, Step time (ms), Epoch time (s), Batch per GPU / 1, 40, 41, 50 / 2, 44, 23, 50",
        "CIFAR-10, batch size 50 per GPU",
    ),
    Case(
        "parts",
        "EXPLAIN",
        "GPUs, Compute (ms), Comm (ms), Total time (ms) / 2, 80, 30, 110 / 4, 80, 45, 105",
        "GPUs, Compute (ms), Comm (ms), Total time (ms) / 2, 80, 30, 110 / 4, 80, 45, 125",
    ),
    Case(
        "percent",
        "FAIL",
        "GPUs, Compute (%), Comm (%) / 2, 80, 20 / 4, 70, 40",
        "GPUs, Compute (%), Comm (%) / 2, 80, 20 / 4, 60, 40",
    ),
    Case(
        "summary-row",
        "FAIL",
        "Model, Time (s) / A, 10.2 / B, 14.4 / C, 12.0 / Average, 14.6",
        "Model, Time (s) / A, 10.2 / B, 14.4 / C, 12.0 / Average, 12.2",
    ),
    Case(
        "accuracy-images",
        "SUSPECT",
        "GPUs, Accuracy (%) / 1, 91.50 / 2, 91.37",
        "GPUs, Accuracy (%) / 1, 91.50 / 2, 91.00",
        "200 test images",
    ),
    Case(
        "parameters",
        "SUSPECT",
        "Model, Parameters / ResNet-18, 11689512 / ResNet-50, 23520842",
        "Model, Parameters / ResNet-18, 11181642 / ResNet-50, 23520842",
        "CIFAR-10",
    ),
    Case(
        "bandwidth",
        "FAIL",
        "GPUs, Size (MB), Comm time (ms), Bandwidth (GB/s) / 2, 100, 20, 5.0 / 4, 100, 25, 0.5",
        "GPUs, Size (MB), Comm time (ms), Bandwidth (GB/s) / 2, 100, 20, 5.0 / 4, 100, 25, 4.0",
    ),
    Case(
        "busbw",
        "FAIL",
        "size (B), algbw (GB/s), busbw (GB/s) / 1048576, 4.00, 6.00 / 4194304, 6.00, 12.00",
        "size (B), algbw (GB/s), busbw (GB/s) / 1048576, 4.00, 6.00 / 4194304, 6.00, 9.00",
        "all-reduce on 4 GPUs",
    ),
    Case(
        "link-peak",
        "SUSPECT",
        "GPUs, Bandwidth (GB/s) / 2, 0.9 / 4, 2.4",
        "GPUs, Bandwidth (GB/s) / 2, 0.9 / 4, 1.1",
        "over 10 Gbit/s Ethernet",
    ),
    Case(
        "base-not-one",
        "FAIL",
        "GPUs, Time (s), Speedup / 1, 40, 1.20 / 2, 25, 1.60 / 4, 16, 2.50",
        "GPUs, Time (s), Speedup / 1, 40, 1.00 / 2, 25, 1.60 / 4, 16, 2.50",
    ),
    Case(
        "superlinear",
        "SUSPECT",
        "GPUs, Time (s), Speedup / 1, 40, 1.00 / 2, 15, 2.67",
        "GPUs, Time (s), Speedup / 1, 40, 1.00 / 2, 20, 2.00",
    ),
    Case(
        "rows-differ",
        "EXPLAIN",
        "GPUs, Batch, Time (s), Speedup / 1, 64, 40, 1.00 / 2, 64, 25, 1.60 / 4, 32, 16, 2.50",
        "GPUs, Batch, Time (s), Speedup / 1, 64, 40, 1.00 / 2, 64, 25, 1.60 / 4, 64, 16, 2.50",
    ),
    Case(
        "base-absolute",
        "MISSING",
        "GPUs, Speedup / 1, 1.0 / 2, 1.9 / 4, 3.4",
        "GPUs, Time (s), Speedup / 1, 34, 1.0 / 2, 18, 1.9 / 4, 10, 3.4",
    ),
    Case(
        "batch-above-data",
        "FAIL",
        "Batch size, Epoch time (s) / 1024, 6.1 / 65536, 13.2",
        "Batch size, Epoch time (s) / 1024, 6.1 / 32768, 13.2",
        "CIFAR-10, one GPU",
    ),
    Case(
        "flat-over-batch",
        "SUSPECT",
        "Batch size, Epoch time (s) / 64, 6.1 / 256, 6.0 / 1024, 5.9",
        "Batch size, Epoch time (s) / 64, 6.1 / 256, 4.0 / 1024, 3.2",
        "CIFAR-10, one GPU",
    ),
    Case("rank-times", "SUSPECT", "Rank, Step time (ms) / 0, 105 / 1, 139", "Rank, Step time (ms) / 0, 105 / 1, 106"),
    Case(
        "serial-fraction",
        "FAIL",
        "GPUs, Speedup, Serial fraction / 2, 1.80, 0.111 / 4, 3.00, 0.250",
        "GPUs, Speedup, Serial fraction / 2, 1.80, 0.111 / 4, 3.00, 0.111",
    ),
    Case(
        "too-regular",
        "SUSPECT",
        "GPUs, images/s / 1, 412.5 / 2, 825.0 / 4, 1650.0 / 8, 3300.0",
        "GPUs, images/s / 1, 412.5 / 2, 801.3 / 4, 1562.0 / 8, 2911.7",
    ),
    Case(
        "inferred-communication",
        "EXPLAIN",
        "GPUs, Epoch time (s), Comm (s) / 1, 40.0, 0 / 2, 25.0, 5.0 / 4, 16.0, 6.0",
        "GPUs, Epoch time (s), Comm (s) / 1, 40.0, 0 / 2, 25.0, 4.1 / 4, 16.0, 5.2",
        "time of an epoch",
    ),
    Case(
        "impossible",
        "FAIL",
        "GPUs, Time (s) / 1, 40.0 / 2, -24.0 / 4, 14.0",
        "GPUs, Time (s) / 1, 40.0 / 2, 24.0 / 4, 14.0",
    ),
    Case(
        "traffic",
        "FAIL",
        "GPUs, Data exchanged per epoch (GB) / 2, 13.2 / 4, 13.2 / 8, 13.2",
        "GPUs, Data exchanged per epoch (GB) / 2, 18.3 / 4, 27.4 / 8, 32.0",
        "ResNet-18 with 46.8 MB of gradients. The data set has 13.2 GB.",
    ),
    Case(
        "link-share",
        "FAIL",
        "Nodes, Bandwidth (GB/s), Link utilization (%) / 2, 7.3, 7.3 / 4, 6.8, 6.8",
        "Nodes, Bandwidth (GB/s), Link utilization (%) / 2, 7.3, 58.4 / 4, 6.8, 54.4",
        "over 100 Gbit/s Ethernet",
    ),
    Case(
        "worker-time",
        "FAIL",
        "GPUs, Time (h), GPU-hours / 8, 10.0, 80.0 / 16, 5.2, 83.2 / 32, 2.8, 98.6",
        "GPUs, Time (h), GPU-hours / 8, 10.0, 80.0 / 16, 5.2, 83.2 / 32, 2.8, 89.6",
    ),
    Case(
        "scaling-kind",
        "FAIL",
        "GPUs, Global batch, images/s / 1, 64, 410 / 2, 128, 800 / 4, 256, 1560",
        "GPUs, Global batch, images/s / 1, 64, 410 / 2, 64, 800 / 4, 64, 1560",
        "Strong scaling",
    ),
    Case(
        "bold",
        "SUSPECT",
        "Strategy, GPUs, Time (s) / DP, 4, 25 / DDP, 4, 16 / Ours, 4, **18**",
        "Strategy, GPUs, Time (s) / DP, 4, 25 / DDP, 4, 16 / Ours, 4, **14**",
    ),
)


def test_each_rule_has_a_case() -> None:
    assert {rule.id for rule in RULES} - {"missing", "bytes-unit", "claim", "gain", "workers"} == {
        case.rule for case in CASES
    }


@pytest.mark.parametrize("case", CASES, ids=[case.rule for case in CASES])
def test_a_wrong_table_is_found_and_the_right_one_is_not(case: Case) -> None:
    if case.verdict == "MISSING":
        assert case.rule in rules(table(case.wrong, case.words))
    else:
        assert found(table(case.wrong, case.words)) == [(case.rule, case.verdict), *case.also]
    assert found(table(case.right, case.words)) == []
    assert case.rule not in rules(table(case.right, case.words))
