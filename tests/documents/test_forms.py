"""A table is the same whatever form it was published in."""

import pytest
from document_forms import FORMS, PUBLISHED, copied, markdown

from worldsize.documents.read import read


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_each_form_gives_the_same_table(name: str, form: str) -> None:
    table = PUBLISHED[name]
    path, written = FORMS[form]
    document = read(path, text=written(table))
    (found,) = document.tables
    assert found.header == (table.header,)
    assert found.rows == table.rows
    assert table.words in " ".join(document.text.split("\n"))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_form_is_known_without_a_suffix(name: str, form: str) -> None:
    table = PUBLISHED[name]
    path, written = FORMS[form]
    document = read("-", text=written(table))
    (found,) = document.tables
    assert (found.header, found.rows) == ((table.header,), table.rows)
    if path != "a.txt":
        assert document.format == read(path, text=written(table)).format


def test_a_page_of_several_tables_has_them_in_their_order() -> None:
    document = read("a.md", text="\n".join(map(markdown, PUBLISHED.values())))
    assert [table.rows for table in document.tables] == [table.rows for table in PUBLISHED.values()]
    assert [block for block in document.blocks if isinstance(block, str)][::2] == [
        table.words for table in PUBLISHED.values()
    ]


def test_text_out_of_a_page_with_several_tables() -> None:
    text = "\n".join(copied(table) for table in PUBLISHED.values())
    assert [table.rows for table in read("-", text=text).tables] == [table.rows for table in PUBLISHED.values()]


def test_lines_are_those_of_the_file() -> None:
    text = "\n\n".join(written(PUBLISHED["groups"]) for _, written in (FORMS["markdown"], FORMS["html"]))
    first, second = read("a.md", text=text).tables
    lines = text.split("\n")
    assert "32 per GPU: Time" in lines[first.line - 1]
    assert "<table>" in lines[second.line - 1]
