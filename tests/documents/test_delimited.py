"""Values between commas, semicolons, tabs and bars."""

import pytest

from worldsize.documents.document import Document, Table
from worldsize.documents.read import read


def values(text: str, path: str = "a.csv") -> Document:
    return read(path, text=text)


def table(text: str) -> Table:
    (found,) = values(text).tables
    return found


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_each_delimiter(delimiter: str) -> None:
    found = table(f"GPUs{delimiter}Time\n1{delimiter}38.0\n2{delimiter}20.5\n")
    assert (found.header, found.rows, found.line) == ((("GPUs", "Time"),), (("1", "38.0"), ("2", "20.5")), 1)


def test_quoted_entries() -> None:
    found = table('"GPUs","Images, all","Note"\n1,"1,024","a ""b"" c"\n8,"7,940","two\nlines"\n')
    assert found.header == (("GPUs", "Images, all", "Note"),)
    assert found.rows == (("1", "1,024", 'a "b" c'), ("8", "7,940", "two lines"))


def test_a_quote_that_is_left_open() -> None:
    found = table('GPUs,Time\n1,"38\n' + "\n".join(f"{at},20" for at in range(2, 60)))
    assert len(found.rows) == 59


def test_decimal_commas() -> None:
    found = table("GPUs;Time;Rate\n1;25,86;1.234,5\n2;12,9 s;2.300,0\n")
    assert found.rows == (("1", "25.86", "1234.5"), ("2", "12.9 s", "2300.0"))


def test_commas_that_part_thousands_stay() -> None:
    assert table("GPUs;Time;Images\n1;25.86;50,000\n2;12.9;50,000\n").rows[0] == ("1", "25.86", "50,000")
    assert table("GPUs\tImages\n1\t50,000\n2\t50,000\n").rows[0] == ("1", "50,000")


def test_comments_and_words_above() -> None:
    document = values(
        "# one epoch, in seconds\nResNet-18 on CIFAR-10\n\nTime of all runs\nGPUs,Time,Speedup\n"
        "1,38,1\n# slow\n2,20,1.9\n"
    )
    (found,) = document.tables
    assert found.header == (("GPUs", "Time", "Speedup"),)
    assert found.rows == (("1", "38", "1"), ("2", "20", "1.9"))
    assert found.line == 5
    assert {"one epoch, in seconds", "ResNet-18 on CIFAR-10", "Time of all runs", "slow"} <= set(
        document.text.split("\n")
    )


def test_words_below() -> None:
    document = values("GPUs,Time,Speedup\n1,38,1\n2,20,1.9\nmeasured on four machines\n")
    assert document.tables[0].rows == (("1", "38", "1"), ("2", "20", "1.9"))
    assert document.text == "measured on four machines"


def test_several_tables() -> None:
    first, second = values("a,b\n1,2\n3,4\n,,\nc,d,e\n5,6,7\n8,9,0\n").tables
    assert (first.header[0], second.header[0], second.line) == (("a", "b"), ("c", "d", "e"), 5)


def test_a_heading_of_numbers() -> None:
    assert table("GPUs,1,2,4,8\nTime,38,20,11,6\nSpeedup,1,1.9,3.5,6.3\n").header == (("GPUs", "1", "2", "4", "8"),)
    assert table(",1,2,4,8\nTime,38,20,11,6\nSpeedup,1,1.9,3.5,6.3\n").header == (("", "1", "2", "4", "8"),)


def test_without_a_heading() -> None:
    assert table("1,38,1.0\n2,20,1.9\n4,11,3.5\n").header == ()
    assert table("1-GPU,38,1.0\n2-GPU,20,1.9\n4-GPU,11,3.5\n").header == ()


def test_a_heading_as_a_comment() -> None:
    assert table("# gpus,time\n1,38\n2,20\n").header == (("gpus", "time"),)


def test_a_heading_of_two_rows() -> None:
    found = table("GPUs,32 per GPU,,128 per GPU,\n,Time (s),Speedup,Time (s),Speedup\n1,38,1,16,1\n2,67,0.57,18,0.89\n")
    assert found.header == (
        ("GPUs", "32 per GPU", "32 per GPU", "128 per GPU", "128 per GPU"),
        ("", "Time (s)", "Speedup", "Time (s)", "Speedup"),
    )
    found = table("GPUs,batch size,,\n,32,128,512\n1,38,16,13\n2,67,18,9\n")
    assert found.header == (("GPUs", "batch size", "batch size", "batch size"), ("", "32", "128", "512"))


def test_the_column_of_names_may_have_no_name_at_all() -> None:
    found = table("time,speedup\n1-GPU,38,1\n2-GPU,20,1.9\n")
    assert (found.header, found.rows[0]) == ((("", "time", "speedup"),), ("1-GPU", "38", "1"))


def test_empty_and_short_rows() -> None:
    found = table("a,b,c\n1,,3\n1,2\n,,\n")
    assert found.rows == (("1", "", "3"), ("1", "2", ""))


def test_marks_of_bold() -> None:
    found = table("a,b\n1,**3.5**\n2,3.1*\n")
    assert found.rows == (("1", "3.5"), ("2", "3.1"))
    assert found.bold == {(0, 1)}


def test_prose_is_no_table() -> None:
    document = values("Hello, world\nThis, that\n\nGPUs,Time\n1,38\n2,20\n")
    assert len(document.tables) == 1
    assert document.text == "Hello, world\nThis, that"
