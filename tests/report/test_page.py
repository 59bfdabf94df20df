import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest

from made_runs import MadeCell, make_run, messy_cells, usual_cells
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.contents import sections
from worldsize.report.page import key_numbers, render_page
from worldsize.results.folder import load_run

VOID = {"meta", "link", "br", "hr", "img", "input", "path", "line", "rect"}
HOSTILE = "<script>alert('model')</script>"


class Page(HTMLParser):
    """The tags of a page, its text, and whether every tag is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(analysis: StudyAnalysis) -> str:
    return render_page(analysis, sections(analysis))


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(make_run(tmp_path_factory.mktemp("usual"), usual_cells(noise=0.01))))


@pytest.fixture(scope="module")
def html(usual: StudyAnalysis) -> str:
    return page_of(usual)


@pytest.fixture(scope="module")
def messy(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    folder = tmp_path_factory.mktemp("messy")
    never = [MadeCell("ddp", 2, 64)]
    return analyse(load_run(make_run(folder, messy_cells(), never_started=never, model=HOSTILE, name=HOSTILE)))


@pytest.fixture(scope="module")
def messy_html(messy: StudyAnalysis) -> str:
    return page_of(messy)


def test_verdict_then_three_numbers_then_a_chart_then_the_tables(usual: StudyAnalysis, html: str) -> None:
    shown = html.replace("\N{NO-BREAK SPACE}", " ")
    places = [shown.index(verdict(usual)), html.index('class="numbers"'), html.index("<svg"), html.index("<table")]
    assert places == sorted(places)
    assert len(Page(html).all("dt")) == 3


def test_key_numbers_of_a_known_run(tmp_path: Path) -> None:
    speedup, rate, exposed = key_numbers(analyse(load_run(make_run(tmp_path, usual_cells(noise=0)))))
    assert (speedup.value, speedup.unit) == ("1.80", "of 2")
    assert (speedup.interval, speedup.detail) == ("[1.80, 1.80]", "over single-w1-b32; efficiency 90.0 %")
    assert rate.detail == "ddp with 2 workers at b = 32; 1.09 [1.09, 1.09] times the next, all-reduce-w2-b32"
    assert (rate.value, rate.unit) == ("115", "samples/s")
    assert (exposed.value, exposed.unit) == ("6.00", "% of a step")


def test_every_tag_is_closed_and_ids_are_unique(html: str, messy_html: str) -> None:
    for text in (html, messy_html):
        page = Page(text)
        assert page.open == []
        ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
        assert len(ids) == len(set(ids))


def test_links_inside_the_page_lead_somewhere(html: str) -> None:
    page = Page(html)
    ids = {attributes.get("id") for _, attributes in page.tags}
    anchors = {str(link["href"])[1:] for link in page.all("a") if str(link["href"]).startswith("#")}
    assert anchors
    assert anchors <= ids


def test_nothing_is_loaded_from_anywhere(html: str) -> None:
    page = Page(html)
    (policy,) = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert not page.all("script")
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert [link["href"] for link in page.all("link")] == ["data:,"]
    assert not re.search(r"@import|url\(", html)
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert set(re.findall(r"https?://[^\"'<> ]+", html)) <= namespaces
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]


def test_names_messages_and_reasons_from_users_show_as_text(messy_html: str) -> None:
    page = Page(messy_html)
    assert not page.all("script")
    assert "<script" not in messy_html.lower()
    assert page.text.count(HOSTILE) >= 2
    for text in ("<script>alert('reason')</script>", "<script>alert('warning')</script>", "alert('strategy')"):
        assert text in page.text


def test_tables_are_tables_for_screen_readers(html: str) -> None:
    page = Page(html)
    assert len(page.all("caption")) == len(page.all("table")) >= 6
    assert {cell.get("scope") for cell in page.all("th")} == {"row", "col"}
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in page.all("svg"))
    assert page.tags[0] == ("html", {"lang": "en"})


def test_reads_in_light_dark_narrow_and_print(html: str) -> None:
    for query in ("prefers-color-scheme: dark", "max-width: 46rem", "@media print"):
        assert query in html
    assert 'name="viewport"' in html


def test_links_to_raw_files_exist(tmp_path: Path) -> None:
    run = make_run(tmp_path, usual_cells())
    analysis = analyse(load_run(run))
    links = [str(link["href"]) for link in Page(page_of(analysis)).all("a")]
    raw = [link for link in links if link.startswith("../")]
    assert "../study.json" in raw
    assert len(raw) == 1 + 2 * len(analysis.cells)
    assert all((run / "report" / link).resolve().exists() for link in raw)


def test_numbers_of_cells_without_any_are_dashes(messy_html: str) -> None:
    row = re.search(r'<th scope="row" class="left">ddp-w2-b64</th>(.*?)</tr>', messy_html, re.DOTALL)
    assert row is not None
    assert row[1].count(">–</td>") == 5


def test_warnings_are_counted_on_the_first_screen(messy: StudyAnalysis, messy_html: str, html: str) -> None:
    assert f'href="#warnings">{len(messy.warnings)} warnings' in messy_html
    assert "#warnings" not in html


@pytest.mark.parametrize(
    "cells",
    [
        [],
        [MadeCell("single", 1)],
        [MadeCell("single", 1, blocks=0, warmup_steps=0)],
        [MadeCell("ddp", 2, state="failed")],
        [MadeCell("ddp", 2, state="interrupted", blocks=0)],
        [MadeCell("ddp", 2)],
        [MadeCell("data-parallel", 2, oversubscribed=True)],
    ],
)
def test_a_run_of_which_little_is_left_still_has_a_page(tmp_path: Path, cells: list[MadeCell]) -> None:
    analysis = analyse(load_run(make_run(tmp_path, cells, never_started=[MadeCell("ddp", 4)])))
    page = Page(page_of(analysis))
    assert page.open == []
    assert "ddp-w4-b32" in page.text
    assert len(page.all("dt")) == 3
