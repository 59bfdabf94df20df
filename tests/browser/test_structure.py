"""What a screen reader is told: language, landmarks, headings, tables, names of charts."""

from collections import Counter
from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe

from browser.conftest import Open, Reports, Surveys
from made_reports import RUNS

every_report = pytest.mark.parametrize("name", RUNS)
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "resultTypes": ["violations"],
    "rules": {"color-contrast": {"enabled": False}},  # slow; test_colours looks at all text, and in the dark too
}


@every_report
def test_structure(seen: Surveys, name: str) -> None:
    found = seen(name).structure
    assert found["language"] == "en"
    assert found["title"]
    assert found["mains"] == 1
    assert [name for name, times in Counter(found["ids"]).items() if times > 1] == []
    assert set(found["references"]) <= set(found["ids"])
    assert {"script", "iframe", "object", "embed", "form"} & set(found["elements"]) == set()
    assert [attribute for attribute in found["attributes"] if attribute.startswith("on")] == []


@every_report
def test_headings_descend_without_gaps(seen: Surveys, name: str) -> None:
    levels = seen(name).structure["levels"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert len(levels) > 3
    assert [(a, b) for a, b in pairwise(levels) if b > a + 1] == []


@every_report
def test_tables_have_captions_and_header_cells(seen: Surveys, name: str) -> None:
    tables = seen(name).structure["tables"]
    assert len(tables) > 1
    for table in tables:
        assert table["caption"], table
        assert "col" in table["headers"], table
        assert set(table["headers"]) <= {"col", "row", "colgroup", "rowgroup"}, table


@every_report
def test_charts_are_pictures_with_a_name(seen: Surveys, name: str) -> None:
    charts = seen(name).structure["svgs"]
    assert charts
    for chart in charts:
        assert chart["hidden"] or (chart["role"] == "img" and len(chart["name"]) > 20), chart


@pytest.mark.parametrize("name", ["batch-sweep", "ddp-large-batch", "sync-ladder", "failures"])
def test_axe_finds_nothing(opened: Open, report: Reports, name: str) -> None:
    """The rules of axe-core, the checker that browsers' own tools use: https://github.com/dequelabs/axe-core."""
    page = opened(report(name))
    page.look("open")
    violations = Axe().run(page.page, options=RULES).response["violations"]
    assert [(each["id"], each["help"], [node["html"] for node in each["nodes"]][:3]) for each in violations] == []
