"""Text of users shows as text: on the page, in charts, in Markdown, in a sheet and in LaTeX."""

import csv
import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml

from browser.conftest import Open, Reports
from made_hostile import ATTEMPTS, HOSTILE_RUNS, OWNED
from worldsize.report.write import write_report

DRAWN = {"svg", "g", "path", "text", "tspan", "rect", "circle", "line", "defs", "clippath", "lineargradient", "stop"}
every_run = pytest.mark.parametrize("name", HOSTILE_RUNS)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    folder = tmp_path_factory.mktemp("hostile")
    return cache(lambda name: write_report(HOSTILE_RUNS[name](folder / name)))


@every_run
def test_the_page_shows_it(opened: Open, hostile: Reports, name: str) -> None:
    page = opened(hostile(name))
    found = page.look("structure")
    assert found["title"] != "owned"
    assert OWNED in found["title"], "the run's own name"
    assert not {"script", "img", "iframe", "object", "embed", "base", "foreignobject"} & set(found["elements"])
    assert [each for each in found["attributes"] if each.startswith("on")] == []
    assert [link for link in found["links"] if urlsplit(link["href"]).scheme] == []
    page.look("open")
    shown = " ".join(page.look("text").split())
    for attempt in ATTEMPTS[:-1]:
        assert " ".join(attempt.split()) in shown, "nothing is cut out of what a user wrote"


@every_run
def test_links_keep_their_files(opened: Open, hostile: Reports, name: str) -> None:
    file = hostile(name)
    links = [link["href"] for link in opened(file).look("structure")["links"] if not link["href"].startswith("#")]
    run = file.parents[1]
    targets = {(file.parent / unquote(urlsplit(link).path)).resolve() for link in links}
    assert [target for target in targets if not target.exists() or not target.is_relative_to(run)] == []


@every_run
def test_charts_show_it(opened: Open, hostile: Reports, name: str) -> None:
    drawings = list(hostile(name).parent.glob("*.svg"))
    page = opened(drawings[0])
    for drawing in drawings:
        page.go(drawing)
        found = page.look("structure")
        assert found["title"] == ""
        assert set(found["elements"]) <= DRAWN, drawing.name
        assert [each for each in found["attributes"] if each.startswith("on") or "href" in each] == []


@every_run
def test_markdown_shows_it(
    opened: Open, hostile: Reports, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    monkeypatch.setattr(reader, "validateLink", lambda _: True)  # somebody else's reader may be careless
    for source in hostile(name).parent.glob("*.md"):
        text = source.read_text(encoding="utf-8")
        html = reader.render(text)
        assert (
            re.findall(r"<(?!/?(?:h\d|p|table|thead|tbody|tr|th|td|strong|em|code|pre|br|ul|ol|li|hr)\b|img)", html)
            == []
        )
        assert re.findall(r"<img[^>]*>", html) == re.findall(r'<img src="[A-Za-z0-9-]+\.svg" alt="[^"<>]*" ?/?>', html)
        assert "<a " not in html, source.name
    summary = (hostile(name).parent / "summary.md").read_text(encoding="utf-8")
    html = reader.render(summary)
    assert escapeHtml(ATTEMPTS[0]) in html
    rendered = tmp_path / "summary.html"
    rendered.write_text(f"<!DOCTYPE html><title>kept</title>{re.sub('<img[^>]*>', '', html)}", encoding="utf-8")
    assert opened(rendered).look("structure")["title"] == "kept"


@every_run
def test_a_sheet_computes_nothing(hostile: Reports, name: str) -> None:
    texts = numbers = 0
    for source in hostile(name).parent.glob("*.csv"):
        with source.open(encoding="utf-8", newline="") as file:
            for field in (field for row in csv.reader(file) for field in row):
                try:
                    float(field)
                    numbers += 1
                except ValueError:
                    assert not field.startswith(("=", "+", "-", "@", "\t", "\r", "\n")), (source.name, field)
                    texts += OWNED in field
    assert numbers > 20
    assert texts > 5


@every_run
def test_latex_runs_nothing(hostile: Reports, name: str) -> None:
    files = list(hostile(name).parent.glob("*.tex"))
    if not files:
        pytest.skip("this report has no LaTeX")
    for source in files:
        assert not re.search(r"\\(input|write)\b", source.read_text(encoding="utf-8")), source.name
