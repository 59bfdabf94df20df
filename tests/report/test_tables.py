import csv
import io
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from worldsize.report.tables import (
    Column,
    Table,
    escaped,
    estimate,
    integer,
    interval_keys,
    number,
    shown,
    text,
    to_csv,
    to_markdown,
    to_records,
    turned,
)
from worldsize.results.records import Estimate

TABLE = Table(
    "made",
    "A made table",
    (
        Column("Cell", ("cell",), align="left"),
        Column("Step time", interval_keys("step_s"), "ms"),
        Column("N", ("world_size",)),
    ),
    (
        (text("ddp|w2"), estimate(Estimate(value=0.51234, low=0.5, high=0.52, samples=4), 1e3), integer(1024)),
        (text(None), estimate(None), integer(None)),
    ),
    "A note.",
)


def test_markdown_is_aligned_and_has_title_unit_interval_and_note() -> None:
    assert to_markdown(TABLE) == (
        "### A made table\n"
        "\n"
        "| Cell    | Step time (ms) |     N |\n"
        "| ------- | -------------: | ----: |\n"
        "| ddp\\|w2 | 512 [500, 520] | 1,024 |\n"
        "| –       |              – |     – |\n"
        "\n"
        "A note.\n"
    )


def test_csv_has_raw_values_in_full_and_absent_ones_empty() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == {
        "cell": "ddp|w2",
        "step_s": "0.51234",
        "step_s_low": "0.5",
        "step_s_high": "0.52",
        "world_size": "1024",
    }
    assert set(rows[1].values()) == {""}


def test_records_are_the_raw_values_for_scripts() -> None:
    assert to_records(TABLE)[1] == dict.fromkeys(["cell", "step_s", "step_s_low", "step_s_high", "world_size"])
    assert to_records(TABLE)[0]["step_s_high"] == 0.52


def test_a_table_without_rows_still_has_its_heading() -> None:
    empty = Table("made", "Nothing", TABLE.columns, ())
    assert to_csv(empty) == "cell,step_s,step_s_low,step_s_high,world_size\n"
    assert "| Cell | Step time (ms) |   N |" in to_markdown(empty)


def test_a_number_is_shown_in_its_unit_and_kept_raw() -> None:
    entry = number(0.0123456, 1e3)
    assert (entry.text, entry.raw) == ("12.3", (0.0123456,))


def test_text_is_one_line() -> None:
    assert text("RuntimeError:\n  shapes\tdiffer").text == "RuntimeError: shapes differ"


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>alert(1)</script>",
        "a|b",
        "[x](http://example.org)",
        "`code`",
        "*bold*",
        "__init__",
        "\\",
        "&lt;",
        "x_y_z",
    ],
)
def test_text_from_users_shows_as_it_is_in_markdown(hostile: str) -> None:
    html = MarkdownIt().enable("table").render(f"| a |\n| --- |\n| {escaped(hostile)} |\n")
    shown = hostile.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert f"<td>{shown}</td>" in html


def test_a_table_turned_on_its_side_has_a_line_per_known_value() -> None:
    lines = [(name.text, value.text) for name, value in turned(replace(TABLE, rows=TABLE.rows[:1])).rows]
    assert lines == [("Cell", "ddp|w2"), ("Step time (ms)", "512 [500, 520]"), ("N", "1,024")]


def test_what_means_nothing_for_one_worker_is_shown_only_with_a_value() -> None:
    columns = (Column("Cell", ("cell",)), Column("busbw", ("busbw",), between_workers=True, note="busbw = …"))
    without = Table("made", "Made", columns, ((text("a"), number(None)), (text("b"), number(None))), "A note.")
    assert "busbw" not in to_markdown(without)
    assert shown(without).remarks == "A note."
    assert to_records(without)[0] == {"cell": "a", "busbw": None}, "a script finds the same columns at any N"
    having = replace(without, rows=((text("a"), number(None)), (text("b"), number(2.0))))
    assert shown(having) == having
    assert having.remarks == "A note. busbw = …"
