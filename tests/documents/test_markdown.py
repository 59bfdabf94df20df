"""Markdown: its own tables, raw HTML, and what stands in code blocks."""

import pytest

from worldsize.documents.document import Document
from worldsize.documents.read import read


def markdown(text: str) -> Document:
    return read("a.md", text=text)


def test_marks_are_taken_off_and_bold_is_kept() -> None:
    (table,) = markdown(
        "| *Run* | `Time` (s) | [Speed-up](https://example.com/a) |\n|---|---|---|\n"
        "| **ours** | **3.97**× | **3.88** |\n| a\\|b | 12.3\\* | ![x](y) ~5 |\n| base<br>"
        "line | 5.82<sup>a</sup> | $3.97\\times$ |\n"
    ).tables
    assert table.header == (("Run", "Time (s)", "Speed-up"),)
    assert table.rows == (("ours", "3.97×", "3.88"), ("a|b", "12.3", "x ~5"), ("base line", "5.82", "3.97×"))
    assert table.bold == {(0, 0), (0, 2)}


def test_html_in_markdown_with_blank_lines() -> None:
    document = markdown(
        "# Results\n\n<table>\n  <tr><th>GPUs</th><th>Time</th></tr>\n\n  <tr><td>1</td><td>38</td></tr>\n\n"
        "</table>\n\nAfter it.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    )
    first, second = document.tables
    assert (first.header, first.rows, first.line) == ((("GPUs", "Time"),), (("1", "38"),), 3)
    assert second.line == 12
    assert document.text == "Results\nAfter it."


def test_a_table_in_a_code_block() -> None:
    text = (
        "Output:\n\n```\nGPUs   Time (s)\n1      38.0\n2      20.5\n```\n\n    GPUs   Time\n"
        "    4      11\n    8      6\n"
    )
    first, second = markdown(text).tables
    assert (first.header, first.rows, first.line) == ((("GPUs", "Time (s)"),), (("1", "38.0"), ("2", "20.5")), 4)
    assert (second.header, second.rows) == ((("GPUs", "Time"),), (("4", "11"), ("8", "6")))


def test_code_blocks_of_other_formats() -> None:
    text = (
        "```csv\nGPUs,Time\n1,38\n2,20\n```\n\n```json\n" + '[{"GPUs": 1, "Time": 38.0}]\n```\n\n'
        "~~~latex\n\\begin{tabular}{rr} GPUs & Time \\\\ \\hline 1 & 38 \\\\ \\end{tabular}\n~~~\n\n"
        "```json\n{broken\n```\n"
    )
    assert [table.rows for table in markdown(text).tables] == [
        (("1", "38"), ("2", "20")),
        (("1", "38.0"),),
        (("1", "38"),),
    ]


def test_code_is_words() -> None:
    document = markdown(
        "| a | b |\n|---|---|\n| 1 | 2 |\n\n```bash\ntorchrun --nproc 4 train.py --batch-size 128\n```\n"
    )
    assert "--batch-size 128" in document.text


def test_a_second_row_of_the_heading() -> None:
    (table,) = markdown(
        "| GPUs | 32 | |\n|---|---|---|\n| | Time | Speedup |\n| 1 | 38 | 1 |\n| 2 | 20 | 1.9 |\n"
    ).tables
    assert table.header == (("GPUs", "32", ""), ("", "Time", "Speedup"))
    assert table.rows == (("1", "38", "1"), ("2", "20", "1.9"))


def test_a_heading_of_nothing_is_none() -> None:
    (table,) = markdown("| | |\n|---|---|\n| GPUs | Time |\n| 1 | 38 |\n| 2 | 20 |\n").tables
    assert table.header == (("GPUs", "Time"),)


def test_rows_that_begin_with_an_empty_cell_where_no_bar_stands_at_the_edge() -> None:
    (table,) = markdown("batch | gpus | speed\n-- | -- | --\n256 | 1 | 6982\n  | 2 | 9908\n").tables
    assert table.rows == (("256", "1", "6982"), ("", "2", "9908"))


def test_a_sentence_right_below_a_table_is_no_row() -> None:
    document = markdown("| a | b |\n|---|---|\n| 1 | 2 |\nSpeedup is T(1) / T(N).\n")
    assert document.tables[0].rows == (("1", "2"),)
    assert document.text == "Speedup is T(1) / T(N)."


def test_short_rows_are_filled_and_empty_cells_stay() -> None:
    (table,) = markdown("| a | b | c |\n|---|---|---|\n| 1 | |\n| 1 | 2 | |\n| 1 | 2 | 3 | 4 |\n").tables
    assert table.rows == (("1", "", ""), ("1", "2", ""), ("1", "2", "3"))


def test_a_list_that_says_the_same_of_several_runs() -> None:
    (table,) = markdown(
        "Results:\n\n- 1 GPU: **100** images/s\n- 2 GPUs: 190 images/s\n- 4 GPUs: 350 images/s\n"
    ).tables
    assert (table.header[0], table.rows[1]) == (("GPU", "images/s"), ("2", "190"))


def test_a_page_without_suffix_is_known_by_its_bars() -> None:
    assert read("-", text="# A\n\na | b\n--|--\n1 | 2\n").format == "markdown"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1.284,6", "1,96", "1.955"), ("1284.6", "1.96", "1955")),
        (("1284.6", "1.96", "1.955"), ("1284.6", "1.96", "1.955")),
        (("0.284", "8,16", "0.955"), ("0.284", "8,16", "0.955")),
    ],
)
def test_points_part_thousands_where_commas_part_decimals(cells: tuple[str, ...], expected: tuple[str, ...]) -> None:
    [found] = read("a.md", text=f"| a | b | c |\n|---|---|---|\n| {' | '.join(cells)} |\n").tables
    assert found.rows == (expected,)
