"""Words belong to what they stand by: sections, rows, sentences. Sound documents, and the same with one slip."""

import pytest

from made_audits import audited, found, table

SECTIONS = """# Benchmarks

## CIFAR-10

ResNet-18, fp16, batch 128 per GPU.

| GPUs | Epoch time (s) | Images/s |
|---|---|---|
| 1 | 16.2 | 3086 |
| 2 | 8.4 | 5952 |

## ImageNet

ResNet-50, fp16, batch 64 per GPU.

| GPUs | Epoch time (s) | Images/s |
|---|---|---|
| 1 | 1600 | 801 |
| 2 | 812 | 1578 |
"""
SCALINGS = """## Strong scaling

The mesh stays as it is.

| GPUs | Time (s) | Speedup |
|---|---|---|
| 1 | 90.0 | 1.00 |
| 2 | 46.2 | 1.95 |
| 4 | 24.6 | 3.66 |

## Weak scaling

The mesh grows.

| GPUs | Time (s) | Efficiency |
|---|---|---|
| 1 | 90.0 | 100% |
| 2 | 92.5 | 97.3% |
| 4 | 95.2 | 94.5% |
"""
LATEX = r"""\section{Results}
We study strong and weak scaling.
\begin{table}\caption{Strong scaling, one grid.}
\begin{tabular}{rrr}
Nodes & Time [s] & Efficiency \\ \hline
4 & 80.0 & 1.00 \\
8 & 41.7 & 0.96 \\
16 & 22.7 & 0.88 \\
\end{tabular}\end{table}
"""
SETUP = """# Scaling

## Setup

CIFAR-10, batch 128 per GPU.

## Results

### One host

| GPUs | Epoch time (s) | Images/s |
|---|---|---|
| 1 | 20.0 | 2500 |
| 2 | 10.4 | 4808 |

### Two hosts

| GPUs | Epoch time (s) | Images/s |
|---|---|---|
| 4 | 5.4 | 9259 |
| 8 | 2.9 | 17241 |
"""


@pytest.mark.parametrize("document", [SECTIONS, SCALINGS, SETUP])
def test_a_section_says_what_its_own_table_is_of(document: str) -> None:
    assert found(document) == []


def test_a_slip_in_a_section_is_found_by_the_words_of_that_section() -> None:
    assert found(SECTIONS.replace("| 1578 |", "| 3156 |")) == [("rate-time", "FAIL")]
    assert found(SETUP.replace("| 17241 |", "| 34482 |")) == [("rate-time", "FAIL")], "the setup holds for all sections"


def test_a_caption_comes_before_the_paragraph_above_it() -> None:
    assert not [each for each in audited(LATEX, format="latex").findings if each.verdict != "MISSING"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Table 1: fixed problem size", "Table 2: constant work per GPU"),
        ("Table 1: strong scaling", "Table 2: weak scaling"),
    ],
)
def test_captions_that_say_what_is_kept(first: str, second: str) -> None:
    strong = table("GPUs, Time (s), Speedup / 1, 90.0, 1.00 / 2, 46.2, 1.95 / 4, 24.6, 3.66", first)
    weak = table("GPUs, Time (s), Efficiency / 1, 90.0, 100% / 2, 92.5, 97.3% / 4, 95.2, 94.5%", second)
    assert found(f"# Weak and strong scaling\n\n{strong}\n\n{weak}") == []


MICRO = "GPUs, Micro-batch size, Global batch size, Step time (s), Samples/s"


def test_micro_batches_fill_one_global_batch() -> None:
    sound = f"{MICRO} / 4, 2, 256, 20.1, 12.74 / 8, 2, 256, 10.3, 24.85 / 16, 2, 256, 5.3, 48.30"
    assert found(table(sound)) == []
    assert found(table(sound.replace("48.30", "96.60"))) == [("rate-time", "FAIL")]


def test_each_row_has_the_factor_of_its_own_n_and_collective() -> None:
    by_n = "GPUs, algbw (GB/s), busbw (GB/s) / 2, 180.0, 180.0 / 4, 140.0, 210.0 / 8, 120.0, 210.0 / 16, 110.0, 206.3"
    assert found(table(by_n)) == []
    assert found(table(by_n.replace("140.0, 210.0", "140.0, 245.0"))) == [("busbw", "FAIL")]
    kinds = (
        "collective, GPUs, algbw (GB/s), busbw (GB/s) / all_reduce, 8, 110.0, 192.5 / all_gather, 8, 200.0, 175.0"
        " / broadcast, 8, 205.0, 205.0"
    )
    assert found(table(kinds)) == []
    assert found(table(kinds.replace("200.0, 175.0", "200.0, 350.0"))) == [("busbw", "FAIL")]


def test_nccl_tests_say_their_collective_and_their_ranks_above() -> None:
    ranks = "\n".join(f"#  Rank {rank:2} Group  0 Pid 4711 on node1 device {rank} [0x0{rank}] GPU" for rank in range(4))
    head = "# Collective test starting: all_gather_perf\n# nThread 1 nGpus 4\n#\n# Using devices\n"
    columns = (
        "#\n#       size         count      type   redop    root     time   algbw   busbw\n"
        "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)\n"
    )
    rows = "".join(f"  {2**power}  {2 ** (power - 2)}  float  none  -1  {{}}  {{}}  {{}}\n" for power in (23, 25, 27))

    def output(factor: float) -> str:
        times = [(131.7, 63.69), (372.4, 90.10), (1178.2, 113.92)]
        return head + ranks + columns + rows.format(*(x for t, alg in times for x in (t, alg, round(alg * factor, 2))))

    def rules_of(text: str) -> set[str]:
        return {each.rule for each in audited(text, format=None).findings if each.verdict == "FAIL"}

    assert rules_of(output(0.75)) == set()
    assert rules_of(output(1.5)) == {"busbw"}, "as of an all-reduce"


@pytest.mark.parametrize("beside", ["mean, max", "avg, median"])
def test_a_min_beside_a_mean_is_no_minute(beside: str) -> None:
    words = "Step time in ms on 4 GPUs, batch 16 per GPU."
    rows = f"Model, min, {beside}, samples/s / ViT-S, 41.0, 42.2, 60.1, 1517 / ViT-B, 88.7, 90.1, 120.4, 710"
    assert found(table(rows, words)) == []


def test_where_all_rows_make_one_number_of_samples_the_data_set_is_in_doubt() -> None:
    words = "We fine-tune a ResNet-50 pretrained on ImageNet on our own X-ray images, batch 32 per GPU."
    rows = "GPUs, Epoch time (s), Images/s / 1, 60.2, 199 / 2, 31.5, 381 / 4, 16.9, 710"
    assert found(table(rows, words)) == [("rate-time", "EXPLAIN")]
    # Rates of one worker in place of all make another number in each row.
    each = "GPUs, Epoch time (s), Images/s / 1, 1600, 801 / 2, 812, 789 / 4, 420, 763"
    assert {verdict for _, verdict in found(table(each, "ImageNet, batch 64 per GPU."))} == {"FAIL"}


TABLE = "GPUs, Throughput (img/s), Efficiency / 8, 6210, 100% / 16, 12050, 97% / 32, 23300, 94%"
WORDS = "ResNet-50, ImageNet, 128 images per GPU, V100."


@pytest.mark.parametrize(
    "sentence",
    [
        "On A100 the same run is 2.4x faster.",
        "The fused kernel alone makes the run 1.3x faster.",
        "Compared with Horovod, our implementation is 1.25x faster at 32 GPUs.",
        "Horovod reaches 82% efficiency on the same 32 GPUs.",
        "A 1.5x larger batch makes the epoch 8% faster.",
        "Enabling channels_last yields a 1.2x speedup on 32 GPUs.",
        "VGG-16 scales worse: 2.9x on 32 GPUs.",
        "1.2 trains 1.68x faster than 1.0.",
    ],
)
def test_a_sentence_of_other_work_claims_nothing_of_the_table(sentence: str) -> None:
    assert found(f"{table(TABLE, WORDS)}\n\n{sentence}") == []


@pytest.mark.parametrize(
    "sentence", ["32 V100 GPUs are 4.4x faster than 8 GPUs.", "ResNet-50 reaches 82% efficiency on 32 GPUs."]
)
def test_a_sentence_of_the_table_itself_is_still_checked(sentence: str) -> None:
    assert {rule for rule, _ in found(f"{table(TABLE, WORDS)}\n\n{sentence}")} != set()


def test_a_row_that_is_bold_all_along_is_no_best() -> None:
    rows = "Config, GPUs, Images/s / small, 8, 5120 / **default**, **8**, **5010** / large, 8, 5230"
    assert ("bold", "SUSPECT") not in found(table(rows))
    assert ("bold", "SUSPECT") in found(table(rows.replace("**default**, **8**", "default, 8")))
