"""Tables as strangers print them: each with one wrong number, and as it should be."""

import pytest

from made_audits import audited, found, table
from worldsize.analysis.audit.overrides import Overrides
from worldsize.errors import UsageError

CASES = (
    ("speedup", "GPUs, TFLOPS/GPU, Tokens/s, Speedup / 8, 101.7, 268178, 1.00 / 16, 97.1, 528250, {}", "3.00", "1.97"),
    ("speedup", "Nodes, GPUs/node, images/s, Speedup / 1, 1, 300, 1.00 / 1, 8, 2280, 7.60 / 2, 8, 4400, {}", "15.9", "14.7"),
    ("efficiency", "Nodes, GPUs per node, images/s, Efficiency / 1, 8, 2400, 100% / 2, 8, 4600, 96% / 4, 8, 8900, {}", "83%", "93%"),
    ("workers", "Nodes, GPUs/node, GPUs, images/s / 1, 8, 8, 2400 / 2, 8, 16, 4600 / 4, 8, {}, 8900", "64", "32"),
    ("bandwidth", "world_size, comm_ms, payload_mb, busbw_gbps / 2, 22.4, 102.2, 4.56 / 4, 31.8, 102.2, {} / 8, 36.2, 102.2, 4.94", "38.57", "4.82"),
    ("rate-time", "GPUs, Batch per GPU, it/s, images/s / 1, 64, 10.0, 640 / 2, 64, 9.5, 1216 / 4, 64, 9.1, {}", "1165", "2330"),
    ("rate-time", "GPUs, s/it, it/s / 1, 0.100, 10.0 / 2, 0.105, 9.52 / 4, 0.110, {}", "12.1", "9.09"),
    ("serial-fraction", "GPUs, Speedup, e / 2, 1.82, 0.100 / 4, 3.08, {} / 8, 4.71, 0.100", "0.150", "0.100"),
    ("efficiency", "GPUs, Speedup, E / 2, 1.82, 0.91 / 4, 3.08, {} / 8, 4.71, 0.59", "0.97", "0.77"),
    ("impossible", "GPUs, Time (s) / 1, 40.0 / 2, {} / 4, 14.0", "-24.0", "24.0"),
    ("impossible", "GPUs, Time (s) / 1, 40.0 / {}, 24.0 / 4, 14.0", "-2", "2"),
    ("impossible", "GPUs, Time (s) / 1, 40.0 / {}, 24.0 / 4, 14.0", "2.5", "2"),
    ("impossible", "GPUs, Epoch time (s), Accuracy (%) / 1, 40.0, 91.2 / 2, 24.0, {} / 4, 14.0, 91.1", "101.2", "91.2"),
    ("gain", "GPUs, Baseline (ms), Ours (ms), Speedup / 1, 100.0, 80.0, 1.25 / 2, 110.0, 82.0, 1.34 / 4, 130.0, 88.0, {}", "1.98", "1.48"),
    ("gain", "Model, Baseline (ms), Ours (ms), Improvement (%) / A, 100.0, 80.0, 20.0 / B, 110.0, 82.0, 25.5 / C, 130.0, 88.0, {}", "52.3", "32.3"),
    ("gain", "Model, Baseline (ms), Ours (ms), Improvement (%) / A, 100.0, 80.0, 25.0 / B, 110.0, 82.0, 34.1 / C, 130.0, 88.0, {}", "32.3", "47.7"),
    ("gain", "GPUs, Time (s), Slowdown / 1, 40.0, 1.00 / 2, 44.0, 1.10 / 4, 50.0, {}", "1.75", "1.25"),
    ("gain", "Method, Time (s), Speedup / Plain, 40.0, 1.00 / Fused, 24.0, 1.67 / Both, 14.0, {}", "3.86", "2.86"),
    ("efficiency", "gpus, images_per_s, pct_of_ideal / 1, 100, 100 / 2, 190, 95 / 4, 360, {}", "70", "90"),
    ("speedup", "Anzahl GPUs, Zeit pro Epoche (s), Beschleunigung / 1, 40.0, 1.00 / 2, 24.0, 1.67 / 4, 14.0, {}", "11.4", "2.86"),
    ("speedup", "Nombre de GPU, Temps par époque (s), Accélération / 1, 40.0, 1.00 / 2, 24.0, 1.67 / 4, 14.0, {}", "11.4", "2.86"),
    ("efficiency", "Knoten, Bilder/s, Effizienz / 1, 150, 100% / 2, 290, 97% / 4, 560, {}", "81%", "93%"),
)  # fmt: skip


@pytest.mark.parametrize(("rule", "rows", "wrong", "right"), CASES)
def test_one_wrong_number_of_a_table_is_found(rule: str, rows: str, wrong: str, right: str) -> None:
    assert (rule, "FAIL") in found(table(rows.format(wrong)))
    assert found(table(rows.format(right))) == []


@pytest.mark.parametrize(
    ("rows", "explained"),
    [
        ("GPUs, Time (s) / 1, 40.0 / 2, 0.0 / 4, 14.0", True),
        ("GPUs, Time (s) / 1, 40.0 / 0, 24.0 / 4, 14.0", True),
        ("Threads, Time (s) / 0, 41.0 / 1, 40.0 / 2, 24.0", False),  # without threads
        ("GPUs, samples/s / 1, 3 / 2, 0 / 4, 8", False),  # rounded away
        ("GPUs, Time (s), Time (s) vs. 1.0 / 1, 40.0, -1.0 / 2, 24.0, -2.0 / 4, 14.0, 1.0", False),  # a difference
        ("GPUs, Speedup, e / 2, 1.80, 0.90 / 4, 3.00, 0.75", False),  # an efficiency by another letter
    ],
)
def test_a_zero_is_explained_or_was_no_number_at_all(rows: str, explained: bool) -> None:
    assert found(table(rows)) == ([("impossible", "EXPLAIN")] if explained else [])


COLUMNS = (
    "Model, 1 GPU, 8 GPUs, Speedup / ResNet-50, 230, 1783, 7.75 / VGG-16, 145, 799, {} / Inception, 140, 1070, 7.64"
)


def test_a_speedup_beside_columns_of_two_n_is_that_of_the_larger() -> None:
    assert found(table(COLUMNS.format("7.51"), "Training throughput (images/s)")) == [("speedup", "FAIL")]
    assert found(table(COLUMNS.format("5.51"), "Training throughput (images/s)")) == []


def test_one_model_alone_does_not_say_what_its_speedup_is_of() -> None:
    assert (
        found(table("Model, 1 GPU, 8 GPUs, Speedup / VGG-16, 145, 799, 7.51", "Training throughput (images/s)")) == []
    )


SIZES = (
    "GPUs, Size (MB), Comm time (ms), Bandwidth (GB/s) / 2, 102.2, 22.4, {} / 4, 153.3, 31.8, {} / 8, 178.9, 36.2, {}"
)


def test_bits_for_bytes_where_the_bytes_differ_with_n() -> None:
    assert found(table(SIZES.format("36.50", "38.57", "39.54"))) == [("bandwidth", "FAIL")]
    assert found(table(SIZES.format("4.56", "4.82", "4.94"))) == []


def test_a_small_b_may_be_bits_throughout() -> None:
    rows = "gpus, comm_ms, payload_mb, bandwidth_gbps / 2, 22.4, 102.2, 36.50 / 4, 31.8, 153.3, 38.57"
    assert found(table(rows)) == []


RATES = "GPUs, images/s / 1, 150 / 8, 1150 / 64, 6100"


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("Throughput is 63x higher on 64 GPUs than on one.", "FAIL"),
        ("Throughput is 41x higher on 64 GPUs than on one.", None),
        ("It scales well: 63x on 64 GPUs.", "FAIL"),
        ("It scales well: 41x on 64 GPUs.", None),
        ("Memory is 63x higher on 64 GPUs than on one.", None),
        ("Images per second: 9800 on 64 GPUs", "SUSPECT"),
        ("Images per second: 6100 on 64 GPUs", None),
        ("We reach 1510 images/s on 8 GPUs.", "SUSPECT"),
        ("We reach 1150 images/s on 8 GPUs.", None),
        ("Others reach 1510 images/s on 16 GPUs.", None),
    ],
)
def test_sentences_that_name_a_factor_or_a_rate(claim: str, verdict: str | None) -> None:
    assert found(table(RATES, claim)) == ([("claim", verdict)] if verdict else [])


def test_money_is_no_traffic() -> None:
    assert found(table("GPUs, Time (h), Cost ($) / 1, 10.0, 3.1 / 2, 5.4, 3.3 / 4, 2.9, 3.6", "all-reduce")) == []


def test_a_unit_of_another_quantity_is_refused() -> None:
    with pytest.raises(UsageError, match="time has no unit 'GB'"):
        found(table(RATES), Overrides(columns={"images/s": "time:GB"}))


def test_a_heading_names_its_variant_in_brackets() -> None:
    rows = "GPUs, DP: Time (s), DDP: Time (s), Speedup (DDP) / 1, 41.2, 41.0, 1.0 / 2, 26.0, 22.1, 1.86 / 4, 19.5, 12.6, {}"
    assert ("speedup", "FAIL") in found(table(rows.format("6.5")))
    assert found(table(rows.format("3.25"))) == []


def test_large_numbers_are_written_out() -> None:
    rows = "GPUs, images/s per GPU, images/s / 1, 820, 820 / 16, 737, 10189 / 8, 751, 6008"
    [finding] = [each for each in audited(table(rows)).findings if each.rule == "rate-total"]
    assert "make 11,790 [11,780, 11,810] together" in finding.says
