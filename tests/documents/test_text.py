"""Plain text: drawn, aligned, copied out of a page, and logs."""

import pytest

from worldsize.documents.document import Document, Table
from worldsize.documents.read import read


def text(source: str) -> Document:
    return read("a.txt", text=source)


def table(source: str) -> Table:
    (found,) = text(source).tables
    return found


def test_columns_of_a_program() -> None:
    found = table("  gpus   time_s  speedup\n0    1   38.000     1.00\n1    2   20.512     1.85\n")
    assert (found.header, found.rows[1]) == ((("", "gpus", "time_s", "speedup"),), ("1", "2", "20.512", "1.85"))


def test_rules_of_strokes_say_where_columns_are() -> None:
    source = (
        "Model        GPUs    Time (s)\n---------  ------  ----------\n"
        "ResNet 18       1       38.0\nVGG             2\n"
    )
    found = table(source)
    assert found.header == (("Model", "GPUs", "Time (s)"),)
    assert found.rows == (("ResNet 18", "1", "38.0"), ("VGG", "2", ""))


def test_a_number_that_is_too_long_for_its_column() -> None:
    found = table("GPUs  Time  Samples/s\n   1  38.0     1310.1\n   8  5.20 104857.61\n")
    assert found.rows == (("1", "38.0", "1310.1"), ("8", "5.20", "104857.61"))


def test_a_cell_that_is_empty() -> None:
    found = table("GPUs   Time   Speedup\n1      38.0   1.00\n2             1.85\n4      11.0   3.45\n")
    assert found.rows == (("1", "38.0", "1.00"), ("2", "", "1.85"), ("4", "11.0", "3.45"))


def test_names_of_groups_above() -> None:
    found = table(
        "              32 per GPU          128 per GPU\n        Time (s)  Speedup   Time (s)  Speedup\n"
        "1-GPU      25.86     1.00      14.73     1.00\n2-GPU      36.93     1.40      17.59     1.67\n"
    )
    assert found.header == (
        ("", "32 per GPU", "32 per GPU", "128 per GPU", "128 per GPU"),
        ("", "Time (s)", "Speedup", "Time (s)", "Speedup"),
    )


def test_names_of_groups_in_text_out_of_a_page() -> None:
    document = text(
        "Table 2: Training time and speedup.\n32 per GPU 128 per GPU 512 per GPU\n"
        "Time (sec) Speedup Time (sec) Speedup Time (sec) Speedup\n"
        "1-GPU 25.86 1.00 14.73 1.00 11.43 1.00\n2-GPU 36.93 1.40 17.59 1.67 12.41 1.84\n"
    )
    (found,) = document.tables
    assert found.header[0] == ("", *("32 per GPU",) * 2, *("128 per GPU",) * 2, *("512 per GPU",) * 2)
    assert found.header[1] == ("", *("Time (sec)", "Speedup") * 3)
    assert document.text == "Table 2: Training time and speedup."


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("Batch Size Time (sec) Speedup", ("Batch Size", "Time (sec)", "Speedup")),
        ("Number of GPUs Time per epoch (s) Speedup", ("Number of GPUs", "Time per epoch (s)", "Speedup")),
        ("# GPUs Images / s Scaling efficiency", ("# GPUs", "Images / s", "Scaling efficiency")),
        ("gpus time speedup", ("gpus", "time", "speedup")),
        ("GPUs batch 32 batch 128", ("GPUs", "batch 32", "batch 128")),
        ("1 GPU 2 GPUs 4 GPUs", ("1 GPU", "2 GPUs", "4 GPUs")),
        (
            "Epoch time (s) Throughput (images / s) Efficiency (%)",
            ("Epoch time (s)", "Throughput (images / s)", "Efficiency (%)"),
        ),
    ],
)
def test_words_of_a_heading(line: str, names: tuple[str, ...]) -> None:
    assert table(f"{line}\n1 38.0 1.00\n2 20.5 1.85\n").header == (names,)


def test_units_and_uncertainties_stay_with_their_number() -> None:
    found = table("GPUs Time Rate\n1 38.0 s 100 ± 3\n2 20.5 s 185 ± 4\n")
    assert found.rows == (("1", "38.0 s", "100 ± 3"), ("2", "20.5 s", "185 ± 4"))


def test_a_heading_of_numbers() -> None:
    found = table("GPUs 1 2 4 8\nTime 38 20 11 6\nSpeedup 1.0 1.9 3.5 6.3\n")
    assert (found.header, found.rows[0]) == ((("GPUs", "1", "2", "4", "8"),), ("Time", "38", "20", "11", "6"))


def test_a_table_of_tabulate() -> None:
    found = table(
        "+--------+------------+\n|   GPUs | Time       |\n+========+============+\n|      1 | 38.0       |\n"
        "+--------+------------+\n|      2 | 20.5       |\n|        | (3 runs)   |\n+--------+------------+\n"
    )
    assert (found.header, found.rows) == ((("GPUs", "Time"),), (("1", "38.0"), ("2", "20.5 (3 runs)")))


def test_several_tables_and_words() -> None:
    document = text(
        "First words.\n\na   b\n1   2\n3   4\n\nMore words\nin two lines.\n\nc   d\n5   6\n7   8\n\nLast.\n"
    )
    assert [each.header for each in document.tables] == [(("a", "b"),), (("c", "d"),)]
    assert [each.line for each in document.tables] == [3, 10]
    assert document.text == "First words.\nMore words in two lines.\nLast."


def test_lines_of_a_log() -> None:
    document = text(
        "Result:\nSingle node with 1 GPUs: 122 samples/sec\nSingle node with 2 GPUs:  234 samples/sec\nall done\n"
    )
    (found,) = document.tables
    assert (found.header, found.rows) == (
        (("", "GPUs", "samples/sec"),),
        (("Single node", "1", "122"), ("Single node", "2", "234")),
    )
    assert document.text == "Result:\nSingle node with # GPUs: # samples/sec\nall done"


def test_lines_of_a_log_that_one_typed() -> None:
    found = table(
        "1 node: 122 samples/sec\n2 nodes: 234 samples/s\n3 nodes: 353 sample/sec\n4 nodes: 470 samples/sec\n"
    )
    assert found.rows == (("1", "122"), ("3", "353"), ("4", "470"))


def test_names_with_digits_in_lines_of_a_log() -> None:
    found = table("1M/1G: p50:  122/s  p95:  121/s\n1M/2G: p50:  115/s  p95:  114/s\n")
    assert (found.header, found.rows[1]) == ((("M", "G", "p50 (/s)", "p95 (/s)"),), ("1", "2", "115", "114"))
    found = table(
        "2024-01-02 10:00:01 epoch 1, loss = 2.5, lr = 1e-4\n2024-01-02 10:00:09 epoch 2, loss = 2.1, lr = 1e-4\n"
    )
    assert (found.header, found.rows[0]) == ((("epoch", "loss", "lr"),), ("1", "2.5", "1e-4"))


@pytest.mark.parametrize(
    "prose",
    [
        "We train ResNet-18 on 4\nGPUs with a batch of 32\nand see a speed-up of 3.8.\n",
        "1 Introduction 3\n2 Method 5\n3 Results 12\n",
        "learning rate 0.1\nbatch size 128\nmomentum 0.9\n",
        "[1] A. Author. A paper. 2019.\n[2] B. Author. Another one. 2020.\n",
    ],
)
def test_prose_is_no_table(prose: str) -> None:
    document = text(f"{prose}\n\nGPUs   Time\n1      38\n2      20\n")
    assert len(document.tables) == 1


def test_ways_of_a_terminal_to_show_colours_are_left_out() -> None:
    found = table("\x1b[1mGPUs\x1b[0m   Time\n\x1b[32m1\x1b[0m      38\n2      20\n")
    assert (found.header, found.rows[0]) == ((("GPUs", "Time"),), ("1", "38"))


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        (["GPUs Throughput Speedup Efficiency", "(images/s) (%)"],
            ["GPUs", "Throughput (images/s)", "Speedup", "Efficiency (%)"]),
        (["# GPUs Step time Throughput Scaling", "(ms) (seq/s) efficiency"],
             ["# GPUs", "Step time (ms)", "Throughput (seq/s)", "Scaling efficiency"]),
        (["Nodes Comp. Comm. Total", "(ms) (ms) (ms)"], ["Nodes", "Comp. (ms)", "Comm. (ms)", "Total (ms)"]),
    ],
)  # fmt: skip
def test_units_may_stand_on_a_line_of_their_own(heading: list[str], names: list[str]) -> None:
    rows = ["1 210.0 152.4 100", "2 221.3 289.2 95", "4 230.1 556.3 91"]
    [found] = read("-", text="\n".join(["Table 2. Scaling.", *heading, *rows, ""]), format="text").tables
    assert [list(row) for row in found.header] == [names]


HOROVOD = """\
Model: resnet50
Batch size: 32
Number of {device}s: {n}
Running benchmark...
Iter #0: {each} img/sec per {device}
Img/sec per {device}: {each} +-2.2
Total img/sec on {n} {device}(s): {total} +-14.4
"""


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:"])
@pytest.mark.parametrize("device", ["GPU", "CPU"])
def test_runs_of_horovod_are_rows(before: str, device: str) -> None:
    runs = [
        HOROVOD.format(device=device, n=n, each=each, total=total)
        for n, each, total in ((1, 302.5, 302.5), (8, 277.9, 2223.2))
    ]
    text = "\n".join(before + line for run in runs for line in run.splitlines())
    [found] = read("-", text=text, format="text").tables
    assert found.header == (
        ("Model", f"Batch size per {device}", f"{device}s", f"img/sec per {device}", "total img/sec"),
    )
    assert found.rows[1] == ("resnet50", "32", "8", "277.9 +-2.2", "2223.2 +-14.4")
