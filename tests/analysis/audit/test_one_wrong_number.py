"""One number that does not fit, in tables and sentences whose other numbers say how they belong together."""

import pytest

from made_audits import audited, found, table


def test_an_efficiency_beside_a_speedup_and_two_columns_of_n() -> None:
    sound = (
        "Model, 1 GPU (img/s), 128 GPUs (img/s), Speedup, Efficiency / ResNet-50, 300, 28000, 93.3, 72.9%"
        " / VGG-16, 180, 15000, 83.3, 65%"
    )
    assert found(table(sound)) == []
    assert found(table(sound.replace("72.9%", "85%"))) == [("efficiency", "FAIL")]
    nodes = "Model, 8 GPUs (img/s), 64 GPUs (img/s), Speedup, Efficiency / ResNet-50, 2400, 18000, 7.5, 93.8%"
    assert found(table(nodes)) == [], "the base is one node"


@pytest.mark.parametrize("heading", ["per-GPU", "per GPU", "each GPU", "Per-worker"])
def test_a_column_of_each_worker_beside_one_of_all(heading: str) -> None:
    sound = f"GPUs, images/s, {heading}, Speedup / 1, 300, 300, 1.00 / 2, 580, 290, 1.93 / 4, 1120, 280, 3.73"
    assert found(table(sound)) == []
    assert found(table(sound.replace("1120, 280", "1120, 310"))) == [("rate-total", "FAIL")]


def test_nodes_times_gpus_under_a_heading_that_names_neither() -> None:
    sound = "Configuration, images/s, Speedup / 1 × 8, 2500, 1.0 / 2 × 8, 4800, 1.92 / 4 × 8, 9200, 3.68"
    assert found(table(sound)) == []
    assert found(table(sound.replace("3.68", "7.36"))) == [("speedup", "FAIL")]


ONE = "GPUs, images/s / 1, 300 / 2, 580 / 4, 1120 / 8, 2150"


def test_two_tables_of_the_same_runs() -> None:
    two = "GPUs, images/s, Speedup / 1, 300, 1.00 / 2, 580, 1.93 / 4, 1120, 3.73"
    assert found(table(f"{ONE} // {two}")) == []
    assert found(table(f"{ONE} // {two.replace('1120, 3.73', '1180, 3.93')}")) == [("contradiction", "SUSPECT")]
    variant = "GPUs, images/s, Speedup / 1, 300, 1.00 / 2, 560, 1.87 / 4, 1060, 3.53"
    assert found(table(f"{ONE} // {variant}")) == [], "another way to train has the same single GPU"


def test_epochs_times_their_samples_are_the_whole_time() -> None:
    words = "CIFAR-10 (50,000 training images), 10 epochs, batch 128 per GPU."
    sound = "GPUs, images/s, Total time (s) / 1, 1000, 503 / 2, 1900, 266 / 4, 3600, 142"
    assert found(table(sound, words)) == []
    assert found(table(sound.replace("142", "239"), words)) == [("rate-time", "FAIL")]
    # With start and evaluation of some minutes.
    assert found(table("GPUs, images/s, Total time (s) / 1, 1000, 560 / 2, 1900, 301 / 4, 3600, 170", words)) == []


def test_one_batch_of_all_workers_in_strong_scaling() -> None:
    sound = "Batch, Workers, Step time (ms), samples/s / 256, 1, 200, 1280 / 256, 2, 110, 2327 / 256, 4, 60, 4267"
    assert found(table(sound, "Strong scaling")) == []
    assert found(table(sound.replace("4267", "2133"), "Strong scaling")) == [("rate-time", "FAIL")]
    weak = "Batch, Workers, Step time (ms), samples/s / 64, 1, 50, 1280 / 64, 2, 55, 2327 / 64, 4, 60, 4267"
    assert found(table(weak, "Weak scaling")) == []
    assert found(table(weak.replace("4267", "1067"), "Weak scaling")) == [("rate-time", "FAIL")]


BOTH = "GPUs, Baseline (img/s), Ours (img/s) / 4, 1000, 1500 / 8, 1900, 3040"
EPOCHS = "GPUs, Epoch time (s) / 1, 240 / 2, 130 / 4, 96"


@pytest.mark.parametrize(
    ("rows", "sentence", "right"),
    [
        (BOTH, "Our method reaches up to 1.6x over the baseline.", True),
        (BOTH, "Our method reaches up to 2.6x over the baseline.", False),
        (BOTH, "It needs 2.1x memory compared to the baseline.", True),
        (EPOCHS, "An epoch drops from 240 s to 96 s.", True),
        (EPOCHS, "An epoch drops from 240 s to 60 s.", False),
        (EPOCHS, "An epoch drops from four minutes to 1.6 minutes.", True),
        (EPOCHS, "The warm-up was raised from 5 s to 60 s.", True),
    ],
)
def test_sentences_of_a_ratio_over_a_baseline_and_of_two_times(rows: str, sentence: str, right: bool) -> None:
    assert (found(f"{table(rows)}\n\n{sentence}") == []) is right


@pytest.mark.parametrize("said", ["1.28M images", "1.28 million training images", "1,281,167 images", "1281k images"])
def test_how_many_images_an_epoch_has(said: str) -> None:
    sound = "GPUs, images/s, Epoch time (s) / 1, 350, 3660 / 4, 1300, 985 / 8, 2500, 512"
    assert found(table(sound, f"Our set has {said}.")) == []
    assert found(table(sound.replace("512", "300"), f"Our set has {said}.")) == [("rate-time", "FAIL")]


def test_tokens_are_recomputed_as_tokens() -> None:
    rows = "GPUs, Tokens/s, Step (ms) / 8, 32768, 1000 / 16, 63015, 1040 / 32, 120470, 1088 / 64, 230000, 1190"
    words = "Weak scaling of BERT-large (sequence length 512, 8 sequences per GPU)."
    finding = next(each for each in audited(table(rows, words)).findings if each.rule == "rate-time")
    assert finding.recomputed
    assert finding.recomputed.endswith("tokens/s")
    assert "220," in finding.recomputed, "512 samples of 512 tokens in 1.19 s"


def test_sizes_of_nccl_tests_count_in_powers_of_two() -> None:
    binary = (
        "Size, Time (us), algbw (GB/s), busbw (GB/s) / 128M, 926.3, 144.9, 285.3 / 256M, 1681.0, 159.7, 314.4"
        " / 512M, 3123.0, 171.9, 338.4"
    )
    assert found(table(binary)) == []
    assert ("bandwidth", "FAIL") in found(table(binary.replace("171.9, 338.4", "162.2, 319.3")))
    decimal = "Size, Time (us), algbw (GB/s) / 128 MB, 883.4, 144.9 / 256 MB, 1603, 159.7 / 512 MB, 2978, 171.9"
    assert found(table(decimal)) == []
    assert found(table(decimal.replace("171.9", "182.4"))) == [("bandwidth", "FAIL")]


def test_a_bus_bandwidth_of_bytes_that_the_words_say() -> None:
    words = "ResNet-18 (11.7M params, fp32): 46.8 MB per step."
    rows = "Workers, all-reduce (ms), Bus bandwidth (GB/s) / 2, 45.0, 1.04 / 4, 68.0, 1.03 / 8, 80.0, 1.02"
    assert found(table(rows, words)) == []
    assert found(table(rows.replace("1.02", "2.05"), words)) == [("bandwidth", "FAIL")]


def test_rates_and_times_of_data_that_nothing_names() -> None:
    rows = "n, epoch_s, samples_per_s / 1, 52.1, 959.7 / 2, 27.3, 1831.5 / 4, 15.0, 3333.3 / 8, 9.6, 5208.3"
    assert found(table(rows)) == []
    assert found(table(rows.replace("5208.3", "4208.3"))) == [("rate-time", "FAIL")]


def test_a_part_that_is_only_called_data() -> None:
    rows = (
        "Strategy, Data, Forward, Backward, Communication, Optimizer, Total / DDP, 2.0, 30.1, 61.0, 8.0, 5.0, 106.1"
        " / gather, 2.1, 30.0, 60.8, 55.2, 5.1, 153.2 / all-reduce, 2.0, 30.2, 61.1, 31.0, 5.0, 129.3"
    )
    assert found(table(rows, "Step breakdown (ms), 4 GPUs")) == []
    assert found(table(rows.replace("129.3", "149.3"), "Step breakdown (ms), 4 GPUs")) == [("parts", "FAIL")]
