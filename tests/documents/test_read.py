"""Which file is read as what, and what is said of those that cannot be."""

import subprocess
import sys
from pathlib import Path

import pytest

from worldsize.documents.document import FORMATS
from worldsize.documents.read import read
from worldsize.errors import UsageError

COMMA = "GPUs,Time\n1,38.0\n2,20.5\n"


@pytest.mark.parametrize(
    "data",
    [
        COMMA.encode(),
        b"\xef\xbb\xbf" + COMMA.encode(),
        COMMA.encode("utf-16"),
        b"\xfe\xff" + COMMA.encode("utf-16-be"),
        COMMA.replace("\n", "\r\n").encode(),
        COMMA.replace("\n", "\r").encode(),
        COMMA.replace("Time", "Zeit f\xfcr").encode("latin-1"),
    ],
)
def test_encodings_and_line_ends(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes(data)
    document = read(str(file))
    (table,) = document.tables
    assert table.header in ((("GPUs", "Time"),), (("GPUs", "Zeit für"),))
    assert table.rows == (("1", "38.0"), ("2", "20.5"))
    assert (document.name, document.format) == (str(file), "csv")


def test_a_suffix_in_capitals(tmp_path: Path) -> None:
    file = tmp_path / "A.CSV"
    file.write_text(COMMA)
    assert read(str(file)).format == "csv"


def test_a_format_that_is_given_counts(tmp_path: Path) -> None:
    assert read("a.md", text=COMMA, format="csv").format == "csv"
    with pytest.raises(UsageError, match=f"unknown format 'pdf'; known: {', '.join(FORMATS)}"):
        read("a.pdf", text=COMMA, format="pdf")


def test_what_is_named_otherwise_than_it_is() -> None:
    assert read("a.md", text="GPUs   Time\n1      38\n2      20\n").tables[0].rows == (("1", "38"), ("2", "20"))
    assert read("a.csv", text="GPUs   Time\n1      38\n2      20\n").format == "text"


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.pdf", b"%PDF-1.7\n\x00", "is a PDF file: copy the words of its table into a text file"),
        ("a.xlsx", b"PK\x03\x04\x00", "is a zipped file: save a spreadsheet as CSV"),
        ("a.png", b"\x89PNG\r\n", "is a picture"),
        ("a.bin", b"a\x00b", "is no text"),
        ("a.txt", b"", "no table was found in"),
        ("a.md", b"# Words\n\nand words.\n", "no table was found in"),
        ("a.html", b"<!-- -->", "no table was found in"),
        ("a.csv", b"1,2\n" * 1_250_001, "has 5.0 MB; up to 5 MB are read"),
        ("a.txt", b"1 2\n" * 20_001, "has more than 20,000 lines of text"),
        ("a.txt", b"1 " * 50_001, "has a line of more than 100,000 characters"),
        ("a.md", b"|a|b|\n|-|-|\n|1|2|\n\n" * 1_001, "holds more than 1,000 tables"),
    ],
)
def test_what_is_no_table(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    with pytest.raises(UsageError) as error:
        read(str(file))
    assert said in str(error.value)
    assert str(file) in str(error.value)
    assert len(str(error.value).split("\n")) <= 2


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        read(str(tmp_path))
    with pytest.raises(UsageError, match="there is no file"):
        read(str(tmp_path / "none.md"))
    with pytest.raises(UsageError, match="standard input was not read"):
        read("-")
    with pytest.raises(UsageError, match="cannot be read"):
        read("a\0b")


def test_formats_are_named_where_no_table_is() -> None:
    with pytest.raises(UsageError, match="Markdown, HTML, CSV or TSV, LaTeX, JSON, and text") as error:
        read("-", text="Words.")
    assert "standard input" in str(error.value)


def test_libraries_are_loaded_by_those_who_need_them() -> None:
    code = (
        "import sys; from worldsize.documents.read import read\n"
        "read('a.csv', text='a,b\\n1,2\\n3,4'); assert not {'lxml', 'markdown_it'} & set(sys.modules)\n"
        "read('a.md', text='<table><tr><th>a<tr><td>1</table>')\n"
        "assert not {'torch', 'pydantic', 'polars', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
