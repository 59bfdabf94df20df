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
    ("efficiency", "GPUs, images/s, Speedup, Efficiency / 1, 100, 1.00, 100% / 4, 340, 3.40, {}", "80%", "85%"),
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


MORE = (
    ("speedup", "GPUs, Time per epoch, Speedup / 1, 3h 20m, 1.0× / 4, 55m, 3.6× / 8, 31m, {}", "7.9×", "6.5×"),
    ("speedup", "GPUs, Wall time, Speedup / 1, 7 h 12 min, 1 / 4, 1 h 57 min, 3.69 / 8, 1 h 2 min, {}", "8.97", "6.97"),
    ("efficiency", "GPUs, Throughput, Efficiency / 1, 3.1k tok/s, 100% / 8, 23.6k tok/s, 95% / 64, 171k tok/s, {}", "96%", "86%"),
    ("rate-time", "Backend, world_size, local_bs, step_ms_p50, step_ms_p99, img_s / nccl, 1, 128, 142.1, 191.0, 900.8 / nccl, 2, 128, 146.0, 200.2, {}", "2753.4", "1753.4"),
    ("efficiency", ", DDP, , Horovod,  / GPUs, img/s, eff., img/s, eff. / 1, 355, 100%, 351, 100% / 4, 1362, 96%, 1316, {}", "74%", "94%"),
    # One base for all rows: 96.1 % fits another 48.6 than the other rows do.
    ("efficiency", "Nodes, Samples/sec, Efficiency / 1, 48.6, 100% / 2, 95.1, 97.8% / 4, 187.2, {} / 8, 368.3, 94.8% / 16, 724.1, 93.2%", "96.1%", "96.3%"),
    ("speedup", "Model, 1 GPU, 4 GPUs, Speedup / A, 402 img/s, 1489 img/s, 3.70× / B, 618 img/s, 2351 img/s, 3.80× / C, 355 img/s, {} img/s, 3.79×", "1104", "1344"),
    ("speedup", ", gpus:, inception3 gce K80, resnet50 gce K80 / images/s, 1, 30, 52 / , 2, 58, 99 / , 4, 116, 195 / speedup, 1, 1.00x, 1.00x / , 2, 1.93x, 1.90x / , 4, {}, 3.75x", "7.57x", "3.87x"),
    ("efficiency", "GPUs, Slices/s, Efficiency / 1, 61.0, 100% / 2, 120.4, 99% / 4, 233.9, {}", "86%", "96%"),
    ("parts", "Setup, Forward (ms), Backward (ms), All-reduce (ms), Optimizer, Idle, Total (ms) / A, 41.2, 83.5, 12.7, 6.1, 0.5, 144.0 / B, 41.3, 83.9, 19.9, 6.2, 0.4, 151.7 / C, 41.0, 84.0, 24.6, 6.1, 0.3, {}", "126.0", "156.0"),
    ("rate-total", "节点数, 卡数, 单卡吞吐（tokens/s）, 总吞吐（tokens/s） / 1, 8, 2310, 18480 / 2, 16, 2265, 36240 / 4, 32, 2190, {}", "78080", "70080"),
    ("percent", "GPU 数, 每步耗时（毫秒）, 计算（毫秒）, 通信（毫秒）, 通信占比 / 2, 120.0, 101.0, 19.0, 15.8% / 4, 131.0, 101.5, 29.5, 22.5% / 8, 148.0, 102.0, 46.0, {}", "45.1%", "31.1%"),
    ("efficiency", "ノード数, スループット（枚/秒）, 並列効率 / 1, 1420, 100% / 2, 2780, 97.9% / 4, 5430, {}", "85.6%", "95.6%"),
    ("speedup", "Число процессов, Время (s), Ускорение / 1, 40.0, 1.00 / 2, 24.0, 1.67 / 4, 14.0, {}", "11.4", "2.86"),
    ("batch-above-data", "dataset, train_samples, gpus, batch_per_gpu, epoch_s / MNIST, 60000, 1, 4096, 3.1 / MNIST, 60000, 8, {}, 1.3", "16384", "4096"),
    ("rate-total", "Nodes, GPUs, total (seq/s), per GPU (seq/s) / 1, 8, 12480, 1560 / 2, 16, {}, 1519", "34310", "24304"),
)  # fmt: skip


@pytest.mark.parametrize(("rule", "rows", "wrong", "right"), MORE)
def test_one_wrong_number_of_an_odd_table_is_found(rule: str, rows: str, wrong: str, right: str) -> None:
    assert (rule, "FAIL") in found(table(rows.format(wrong)))
    assert found(table(rows.format(right))) == []


@pytest.mark.parametrize(
    ("words", "rows", "expected"),
    [
        ("CIFAR-10", "GPUs, Time for 30 epochs, Time per epoch (s), img/s / 1, 10m 30s, 21.0, 2381 / 2, 5m 42s, 11.4, 4386", []),
        ("Step time (ms), all-reduce of 0.5 GB", "GPUs, Time, Bandwidth (GB/s) / 2, 25.0, 20.0 / 4, 40.0, 12.5", []),
        ("VGG-16, 0.553 GB of gradients; ImageNet, 64 images per GPU; communication of an epoch",
         "GPUs, Communication (s), Data exchanged (GB), Bandwidth (GB/s) / 2, 610, 0.553, 0.00091 / 4, 470, 0.830, 0.00177", [("bandwidth", "FAIL")]),
        ("All-reduce of the gradients of BERT-large (335,141,888 parameters, fp16)",
         "GPUs, Bytes (GB), Time (ms), Bandwidth (GB/s) / 2, 0.335, 18.1, 18.5 / 4, 0.503, 21.0, 24.0", [("bandwidth", "FAIL")]),
    ],
)  # fmt: skip
def test_times_and_bytes_are_taken_as_they_are_said(words: str, rows: str, expected: list[tuple[str, str]]) -> None:
    assert found(table(rows, words)) == expected
