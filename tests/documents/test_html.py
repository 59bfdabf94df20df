"""HTML: spans, headings, captions, and pages that are not as they should be."""

from worldsize.documents.document import Document, Table
from worldsize.documents.read import read


def page(text: str) -> Document:
    return read("a.html", text=text)


def table(text: str) -> Table:
    (found,) = page(text).tables
    return found


def test_spans_are_spread() -> None:
    found = table(
        "<table><caption>Time of an <b>epoch</b></caption><thead>"
        "<tr><th rowspan=2>GPUs</th><th colspan='2'>32 per GPU</th><th colspan=2>128 per GPU</th></tr>"
        "<tr><th>Time</th><th>Speedup</th><th>Time</th><th>Speedup</th></tr></thead><tbody>"
        "<tr><td rowspan=2>1</td><td>38</td><td>1</td><td>16</td><td>1</td></tr>"
        "<tr><td>39</td><td>1</td><td colspan=2>OOM</td></tr></tbody></table>"
    )
    assert found.caption == "Time of an epoch"
    assert found.header == (
        ("GPUs", "32 per GPU", "32 per GPU", "128 per GPU", "128 per GPU"),
        ("GPUs", "Time", "Speedup", "Time", "Speedup"),
    )
    assert found.rows == (("1", "38", "1", "16", "1"), ("1", "39", "1", "OOM", "OOM"))


def test_a_row_of_heading_cells_is_the_heading() -> None:
    found = table("<table><tr><td></td><th>1<th>2<th>4<tr><th>Time<td>38<td>20<td>11</table>")
    assert (found.header, found.rows) == ((("", "1", "2", "4"),), (("Time", "38", "20", "11"),))


def test_without_heading_cells_what_is_in_them_tells() -> None:
    found = table("<table><tr><td><b>GPUs</b><td><b>Time</b><tr><td>1<td><strong>38</strong></table>")
    assert (found.header, found.rows) == ((("GPUs", "Time"),), (("1", "38"),))
    assert found.bold == {(0, 1)}


def test_a_table_for_the_layout_of_its_page_is_none() -> None:
    document = page("<table><tr><td>Menu<td><table><tr><th>a<th>b<tr><td>1<td>2</table><p>Words</table>")
    assert [each.rows for each in document.tables] == [(("1", "2"),)]
    assert "Menu" in document.text
    assert "Words" in document.text


def test_scripts_and_styles_are_left_out() -> None:
    document = page(
        "<title>T</title><script>var a = 1;</script><style>b {}</style><table><tr><th>a<tr><td>1</table><!-- c -->"
    )
    assert document.text == "T"


def test_footnotes_powers_and_line_breaks() -> None:
    found = table(
        "<table><tr><th>a<th>b<th>c<th>d<tr><td>5.82<sup>a</sup><td>10<sup>6</sup><td>1.5<sup>[2]</sup>"
        "<td>25.86<br>s<tr><td>3.80†<td>2<sup>20</sup><td>7<sup>*</sup><td>&lt;1&nbsp;ms</table>"
    )
    assert found.rows == (("5.82", "10^6", "1.5", "25.86 s"), ("3.80", "2^20", "7", "<1 ms"))


def test_hidden_words_and_formulas_for_programs_are_left_out() -> None:
    found = table(
        "<table><tr><th>a<th>b<tr><td><span style='display: none'>0001</span>1"
        "<td><math><semantics><mn>3.97</mn><annotation encoding='application/x-tex'>"
        "3.97</annotation></semantics></math></table>"
    )
    assert found.rows == (("1", "3.97"),)


def test_text_that_is_set_below_each_other() -> None:
    document = page("<p>Output</p><pre>GPUs   Time\n1      38\n2      20\n</pre>")
    assert document.tables[0].rows == (("1", "38"), ("2", "20"))


def test_a_page_that_is_cut_off() -> None:
    found = table("<html><body><table><thead><tr><th>GPUs<th>Time<tbody><tr><td>1<td>38<tr><td>2<td>2")
    assert found.rows == (("1", "38"), ("2", "2"))


def test_what_follows_the_end_of_a_page_is_shown_too() -> None:
    one = "<!DOCTYPE html><html><body><table><tr><th>a<tr><td>1</table></body></html>\n"
    assert len(page(one + one + "<table><tr><th>b<tr><td>2</table>").tables) == 3


def test_sizes_of_spans_that_are_no_numbers() -> None:
    found = table(
        "<table><tr><th colspan=x>a<th colspan=-3>b<th colspan=0>c<tr><td rowspan=0>1<td>2<td>3<tr><td>4<td>5</table>"
    )
    assert found.rows == (("1", "2", "3"), ("1", "4", "5"))
