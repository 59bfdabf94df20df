"""What a table does not say outright, and most of it shows: from which row all start, and whose the batch is."""

import re

import pytest

from made_audits import audited, found, table
from worldsize.analysis.audit.overrides import Overrides

VARIANTS = "Implementation, Threads, Time (s), Speedup / {}, 1, 51, 1.00 / OpenMP, 4, 13.85, {} / MPI, 8, 9.57, 5.33"


@pytest.mark.parametrize("base", ["Sequential", "serial", "Baseline"])
def test_variants_start_from_the_row_that_is_called_so(base: str) -> None:
    assert found(table(VARIANTS.format(base, "3.92"))) == [("speedup", "FAIL")]
    assert found(table(VARIANTS.format(base, "3.68"))) == []


def test_the_base_may_have_several_workers() -> None:
    rows = "Setup, Nodes, GPUs, samples/s, Scaling / baseline, 1, 8, 1242.7, 1.00x / ours, 2, 16, 2375.9, 1.91x"
    assert found(table(f"{rows} / ours, 4, 32, 4394.8, 3.84x")) == [("speedup", "FAIL")]
    assert found(table(f"{rows} / ours, 4, 32, 4394.8, 3.54x")) == []


def test_a_variant_with_a_base_of_its_own_starts_from_that() -> None:
    rows = "Implementation, Threads, Time (s), Speedup / Sequential, 1, 51, 1.00 / OpenMP, 1, 54, 1.00"
    assert found(table(f"{rows} / OpenMP, 4, 13.85, 3.90")) == []


def test_another_machine_is_no_mere_base() -> None:
    rows = "System, GPUs, Time (s), Speedup / Baseline K80, 1, 50, 1.00 / V100, 2, 20, 2.50 / V100, 4, 11, 4.55"
    assert ("speedup", "FAIL") not in found(table(rows))


RATES = "GPUs, batchsize, sec/iter, samples/s / 1, 1, 7.75, 0.1290 / 2, 6, 10.18, 0.5894 / 4, 16, 12.48, {} / "
RATES += "4, 20, 15.33, 1.3046 / 8, 32, 14.01, 2.2841"
EACH = "GPUs, batchsize, sec/iter, samples/s / 1, 8, 2.000, 4.000 / 2, 8, 2.083, 7.681 / 4, 8, 2.144, 14.93 / "
EACH += "8, 8, 2.209, {}"


@pytest.mark.parametrize(
    ("rows", "right", "wrong"), [(RATES, "1.2821", "1.2521"), (EACH, "28.97", "27.97"), (EACH, "28.97", "3.622")]
)
def test_the_other_rows_say_whose_the_batch_is(rows: str, right: str, wrong: str) -> None:
    assert found(table(rows.format(right))) == []
    assert ("rate-time", "FAIL") in found(table(rows.format(wrong)))


def test_less_than_a_slip_is_none() -> None:
    assert found(table(RATES.format("1.2851"))) == []


def test_two_rows_say_nothing_of_the_batch() -> None:
    assert found(table("GPUs, batchsize, sec/iter, samples/s / 1, 8, 2.000, 4.000 / 2, 8, 2.083, 7.000")) == []


def test_counts_with_chinese_headings() -> None:
    rows = "节点数, GPU数, Tokens/sec, Efficiency / 1, 8, 486, 100% / 2, 16, 951, 97.8% / 4, 32, 1872, {}"
    assert found(table(rows.format("96.3%"))) == []
    assert found(table(rows.format("93.3%"))) == [("efficiency", "FAIL")]
    assert found(table(rows.format("93.3%")), Overrides(columns={"GPU数": "other"})) == [("efficiency", "FAIL")]


def test_per_gpu_alone_is_of_what_stands_left_of_it() -> None:
    rows = "Workers, tokens/s, per GPU, Scaling eff. (%) / 1, 24.1k, 24.1k, 100 / "
    rows += "4, 92.5k, {}, 96.0 / 16, 344k, 21.5k, {}"
    assert found(table(rows.format("23.1k", "89.2"))) == []
    assert found(table(rows.format("23.1k", "79.2"))) == [("efficiency", "FAIL")]
    assert ("rate-total", "FAIL") in found(table(rows.format("33.1k", "89.2")))


COMMAS = """ResNet-18 auf CIFAR-10

GPUs   Zeit/Epoche (s)   Speedup   Effizienz
1      34,2              1,00      100,0 %
2      18,4              1,86      92,9 %
4      10,1              3,39      84,7 %
8      6,3               {}      67,9 %
"""
ROW = re.compile(r" {2,}")


@pytest.mark.parametrize("format", ["text", "markdown"])
def test_decimal_commas(format: str) -> None:
    for speedup, expected in (("5,43", []), ("10,86", [("speedup", "FAIL")])):
        text = COMMAS.format(speedup)
        if format == "markdown":
            words, _, *rows = text.splitlines()
            cells = [" | ".join(ROW.split(row)) for row in rows]
            text = "\n".join([words, "", cells[0], "---|---|---|---", *cells[1:]])
        audit = audited(text, format=None)
        assert [(each.rule, each.verdict) for each in audit.findings if each.verdict in ("FAIL", "EXPLAIN")] == expected


def test_commas_between_thousands_stay() -> None:
    assert found(table("GPUs, images/s, Speedup / 1, 1.240, 1.00 / 4, 4.340, 3.50")) == []
    rows = "| GPUs | images/s | Speedup |\n|---|---|---|\n| 1 | 1,240 | 1.00 |\n| 4 | 4,340 | 3.50 |\n"
    assert found(rows) == []
    assert found(rows.replace(".", ",")) == [], "the speed-ups say that commas part decimals, so 1,240 is 1.24"


@pytest.mark.parametrize("heading", ["Ideal speedup", "Theoretical Speedup", "Speedup (ideal)", "Linear (images/s)"])
def test_what_would_be_ideal_is_no_measurement(heading: str) -> None:
    assert found(table(f"GPUs, {heading}, Time (s) / 1, 1, 40.0 / 2, 2, 25.0 / 4, 4, 16.0 / 8, 8, 11.0")) == []


def test_a_linear_scaling_efficiency_is_measured() -> None:
    rows = "GPUs, Time (s), Linear scaling efficiency / 1, 40, 100% / 2, 25, 80% / 4, 16, 73%"
    assert found(table(rows)) == [("efficiency", "FAIL")]


STEPS = "GPUs, Steps/epoch, Step (ms), Images/s / 1, 391, 98.2, 1303 / 2, 196, 101.5, {} / 4, 98, 106.3, 4817"


def test_a_step_beside_the_steps_of_an_epoch_is_one_step() -> None:
    assert found(table(STEPS.format("2522"), "CIFAR-10, batch size 128 per GPU")) == []
    assert ("rate-time", "FAIL") in found(table(STEPS.format("1261"), "CIFAR-10, batch size 128 per GPU"))


def test_accumulated_batches_are_no_micro_batches() -> None:
    rows = (
        "GPUs, Micro-batch size, Accumulation steps, Global batch, Step time (s), Images/s / 1, 32, 4, 128, .391, 327"
    )
    assert found(table(f"{rows} / 2, 32, 4, 256, .397, 645 / 4, 32, 4, 512, .411, 1246")) == []


EPOCHS = "GPUs, Epoch time (s), Speedup / 1, 1843, 1.00 / 2, 962, 1.92 / 4, 513, 3.59 / 8, 281, 6.55 / 16, 167, 11.02"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("On 16 GPUs training is 13.5x faster than on one GPU.", [("claim", "FAIL")]),
        ("On 16 GPUs training is 13.5x faster.", [("claim", "SUSPECT")]),
        ("On 16 GPUs training is 11x faster than on one GPU.", []),
        ("On 16 GPUs training is 11x faster.", []),
        ("On 16 GPUs training is 1.68x faster than on 8 GPUs.", []),
    ],
)
def test_a_sentence_means_the_base_that_it_names_else_that_of_the_table(
    words: str, expected: list[tuple[str, str]]
) -> None:
    assert found(table(EPOCHS, f"ResNet-50. {words}")) == expected
