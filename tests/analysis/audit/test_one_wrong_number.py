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
    three = (
        "Model, 1 GPU (img/s), 8 GPUs (img/s), 64 GPUs (img/s), Speedup, Efficiency"
        " / ResNet-50, 300, 2350, 17800, 7.57, 94.7% / VGG-16, 180, 1200, 8100, 6.75, 84.4%"
    )
    assert found(table(three)) == [("speedup", "EXPLAIN")], "the base is 8 of 1, 8 and 64: say so"


def test_an_efficiency_beside_a_speed_up_and_round_rates() -> None:
    """100 images/s may be 90 to 110, which says nothing of an efficiency; 3.6 with 4 workers says 89 to 93 %."""
    sound = "GPUs, images/s, Speedup, Efficiency / 1, 100, 1.0, 100% / 2, 190, 1.9, 95% / 4, 360, 3.6, 90%"
    assert found(table(sound)) == []
    assert found(table(sound.replace("90%", "95%"))) == [("efficiency", "FAIL")]


def test_the_parts_of_a_memory_are_no_number_of_parameters() -> None:
    parts = "Rank, Weights (MiB), Buffers (MiB), Gradients (MiB), The rest (MiB) / 0, 42.6, 0.04, 42.6, 255"
    assert found(table(parts)) == []
    beside = "Model, Parameters (M), Gradients (MB) / ResNet-18, 11.2, 44.7 / ResNet-50, 25.6, 102"
    assert found(table(beside)) == []
    assert found(table(beside.replace("102", "204"))) == [("bandwidth", "FAIL")]


@pytest.mark.parametrize("heading", ["per-GPU", "per GPU", "each GPU", "Per-worker"])
def test_a_column_of_each_worker_beside_one_of_all(heading: str) -> None:
    sound = f"GPUs, images/s, {heading}, Speedup / 1, 300, 300, 1.00 / 2, 580, 290, 1.93 / 4, 1120, 280, 3.73"
    assert found(table(sound)) == []
    assert found(table(sound.replace("1120, 280", "1120, 310"))) == [("rate-total", "FAIL")]


def test_nodes_times_gpus_under_a_heading_that_names_neither() -> None:
    sound = "Configuration, images/s, Speedup / 1 × 8, 2500, 1.0 / 2 × 8, 4800, 1.92 / 4 × 8, 9200, 3.68"
    assert found(table(sound)) == []
    assert found(table(sound.replace("3.68", "7.36"))) == [("speedup", "FAIL")]
    batches = "Config, images/s, Speedup / 32 x 1, 310, 1.00 / 64 x 2, 600, 1.94 / 128 x 4, 1150, 3.71"
    assert found(table(batches)) == [], "a batch and a number of workers"


ONE = "GPUs, images/s / 1, 300 / 2, 580 / 4, 1120 / 8, 2150"


def test_two_tables_of_the_same_runs() -> None:
    two = "GPUs, images/s, Speedup / 1, 300, 1.00 / 2, 580, 1.93 / 4, 1120, 3.73 / 8, 2150, 7.17"
    other = two.replace("1120, 3.73", "1180, 3.93")
    assert found(table(f"{ONE} // {two}")) == []
    assert found(table(f"{ONE} // {other}")) == [("contradiction", "SUSPECT")]
    variant = "GPUs, images/s, Speedup / 1, 300, 1.00 / 2, 560, 1.87 / 4, 1060, 3.53 / 8, 2000, 6.67"
    assert found(table(f"{ONE} // {variant}")) == [], "another way to train has the same single GPU"
    named = f"## NFS\n\n{table(ONE, 'Data on NFS')}\n\n## Local disk\n\n{table(other, 'Data on a local disk')}"
    assert found(named) == [], "words tell them apart"
    assert found(f"## Run 1\n\n{table(ONE)}\n\n## Run 2\n\n{table(other)}") == [], "so do headings"
    assert found(table(f"{ONE} // {two.replace('2150, 7.17', '1900, 6.33')}")) == [], "of the largest N alone"


def test_epochs_times_their_samples_are_the_whole_time() -> None:
    words = "CIFAR-10 (50,000 training images), 10 epochs, batch 128 per GPU."
    sound = "GPUs, images/s, Total time (s) / 1, 1000, 503 / 2, 1900, 266 / 4, 3600, 142"
    assert found(table(sound, words)) == []
    assert found(table(sound.replace("142", "71"), words)) == [("rate-time", "FAIL")]
    # A start that does not shrink with N.
    assert found(table(sound.replace("142", "239"), words)) == [("rate-time", "EXPLAIN")]
    # With start and evaluation of some minutes.
    assert found(table("GPUs, images/s, Total time (s) / 1, 1000, 560 / 2, 1900, 301 / 4, 3600, 170", words)) == []


def test_one_batch_of_all_workers_in_strong_scaling() -> None:
    sound = "Batch, Workers, Step time (ms), samples/s / 256, 1, 200, 1280 / 256, 2, 110, 2327 / 256, 4, 60, 4267"
    assert found(table(sound, "Strong scaling")) == []
    assert found(table(sound.replace("4267", "2133"), "Strong scaling")) == [("rate-time", "FAIL")]
    weak = "Batch, Workers, Step time (ms), samples/s / 64, 1, 50, 1280 / 64, 2, 55, 2327 / 64, 4, 60, 4267"
    assert found(table(weak, "Weak scaling")) == []
    assert found(table(weak.replace("4267", "1067"), "Weak scaling")) == [("rate-time", "FAIL")]
    # The digits say that each has 32, whatever the words mean.
    each = "Batch, Workers, Step time (ms), samples/s / 32, 1, 80, 400 / 32, 2, 84, 762 / 32, 4, 90, 1422"
    assert found(table(each, "Strong scaling on CIFAR-10")) == []
    models = "Model, Step time (ms), images/s / A, 100, 2560 / B, 128, 2000 / C, 160, 1600"
    assert found(table(models, "Weak scaling is in Figure 3. Here: 8 GPUs, batch size 256.")) == []


BOTH = "GPUs, Baseline (img/s), Ours (img/s) / 4, 1012, 1518 / 8, 1903, 3045"
VARIANTS = "GPUs, DDP (s), Quick (s) / 4, 100.4, 80.9 / 8, 55.5, 44.1 / 16, 30.0, 23.1"


@pytest.mark.parametrize(
    ("rows", "sentence", "right"),
    [
        (VARIANTS, "On 16 GPUs Quick is 1.3x over DDP.", True),
        (VARIANTS, "On 16 GPUs Quick is 1.5x over DDP.", False),
        (VARIANTS, "On 16 GPUs Quick is 1.3x faster than DDP.", True),
        (VARIANTS, "The number of messages is 4x compared with one bucket.", True),
        (VARIANTS, "Messages shrink 31.8x compared to the baseline.", True),
        (BOTH, "Throughput on 8 GPUs is 1.6x over the baseline.", True),
        (BOTH, "Throughput on 4 GPUs is 1.35x over the baseline.", False),
        (BOTH, "Our method reaches up to 1.6x over the baseline.", True),
        (BOTH, "Our method reaches up to 2.6x over the baseline.", False),
        (BOTH, "It needs 2.1x memory compared to the baseline.", True),
    ],
)
def test_sentences_of_a_ratio_over_another_variant(rows: str, sentence: str, right: bool) -> None:
    assert (found(f"{table(rows)}\n\n{sentence}") == []) is right


def test_a_rate_in_words_is_no_data_set() -> None:
    rows = "GPUs, images/s, Epoch time (s) / 1, 350, 3660 / 4, 1300, 985"
    assert found(table(rows, "ResNet-50 on ImageNet delivers 2.4 thousand images each second.")) == []


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
    assert found(table(rows.replace("5208.3", "4208.3"))) == [("rate-time", "SUSPECT")]
    sets = "Set, GPUs, epoch_s, samples_per_s / small, 1, 52.1, 959.7 / small, 2, 27.3, 1831.5 / small, 4, 15.0, 3333.3"
    assert found(table(f"{sets} / large, 1, 205.0, 961.2 / large, 2, 108.0, 1824.0")) == []


def test_a_part_that_is_only_called_data() -> None:
    rows = (
        "Strategy, Data, Forward, Backward, Communication, Optimizer, Total / DDP, 2.0, 30.1, 61.0, 8.0, 5.0, 106.1"
        " / gather, 2.1, 30.0, 60.8, 55.2, 5.1, 153.2 / all-reduce, 2.0, 30.2, 61.1, 31.0, 5.0, 129.3"
    )
    assert found(table(rows, "Step breakdown (ms), 4 GPUs")) == []
    assert found(table(rows.replace("129.3", "149.3"), "Step breakdown (ms), 4 GPUs")) == [("parts", "FAIL")]
    lengths = "Model, Input, Compute (ms), Comm (ms), Step time (ms) / 125M, 512, 81, 12, 93 / 350M, 512, 190, 31, 221"
    assert found(table(lengths)) == [], "a length of 512"


def test_a_strategy_called_as_its_collective_keeps_its_n() -> None:
    rows = (
        "Run, Time (s), Speedup / DDP 1 GPU, 40.0, 1.00 / DDP 4 GPUs, 11.0, 3.64 / all-reduce 1 GPU, 40.0, 1.00"
        " / all-reduce 4 GPUs, 13.3, 3.01"
    )
    assert found(table(rows)) == []
    assert found(table(rows.replace("3.01", "3.91"))) == [("speedup", "FAIL")]
