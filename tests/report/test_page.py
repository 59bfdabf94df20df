import re
from itertools import pairwise
from pathlib import Path

import pytest

from checked import checked_charts as checked_charts
from made_messages import with_messages
from made_runs import MadeCell, make_run, messy_cells, usual_cells
from reading import Page
from worldsize.analysis.study import StudyAnalysis, analyse
from worldsize.analysis.verdict import verdict
from worldsize.report.contents import sections
from worldsize.report.key_numbers import key_numbers
from worldsize.report.page import render_page
from worldsize.results.folder import load_run

HOSTILE = "<script>alert('model')</script>"


def page_of(analysis: StudyAnalysis) -> str:
    return render_page(analysis, sections(analysis))


CELLS = usual_cells(noise=0.01)


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> StudyAnalysis:
    return analyse(load_run(with_messages(make_run(tmp_path_factory.mktemp("usual"), CELLS), CELLS)))


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
    assert len(Page(render_page(usual, sections(usual), ())).all("dt")) == 3


def test_key_numbers_of_a_known_run(tmp_path: Path) -> None:
    speedup, rate, exposed = key_numbers(analyse(load_run(make_run(tmp_path, usual_cells(noise=0)))))
    assert (speedup.value, speedup.unit) == ("1.80", "of 2")
    assert (speedup.interval, speedup.detail) == (
        "[1.80, 1.80]",
        "over single-w1-b32; efficiency 90.0 %; in brackets: 95 % interval",
    )
    next_one = "1.09 [1.09, 1.09] times the next one, all-reduce-w2-b32, block by block"
    assert rate.detail == f"ddp with 2 workers at b = 32; {next_one}"
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


def test_headings_are_in_order_and_landmarks_are_there(html: str) -> None:
    page = Page(html)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for landmark in ("header", "main", "nav", "footer"):
        assert len(page.all(landmark)) == 1
    first_link = page.all("a")[0]
    assert first_link == {"class": "skip", "href": "#verdict"}
    [verdict_] = [attributes for _, attributes in page.tags if attributes.get("id") == "verdict"]
    assert verdict_["tabindex"] == "-1"  # so that the keyboard goes on from there


def test_every_chart_leads_to_its_numbers_in_a_table_of_the_page(html: str) -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", html, re.DOTALL)
    assert len(captions) >= 5
    ids = {attributes.get("id") for attributes in Page(html).all("caption")}
    for caption in captions:
        target = re.search(r'href="#(table-[^"]*)">The numbers', caption)
        assert target is not None
        assert target[1] in ids


def test_single_ranks_are_shown_on_demand_with_a_bar_and_all_numbers(usual: StudyAnalysis, html: str) -> None:
    page = Page(html)
    assert len(page.all("summary")) == len(page.all("details")) >= 4
    fold = html[html.index("<summary>ddp-w2-b32, by rank (2 ranks)") :].split("</details>")[0]
    bars = re.findall(r'<div class="bar"[^>]*>(.*?)</div>', fold)
    widths = [[float(width) for width in re.findall(r"width:([\d.]+)%", bar)] for bar in bars]
    assert [round(sum(each)) for each in widths] == [90, 100]  # of a made cell rank 0 is 10 % sooner
    assert fold.count("<tr>") == 3
    assert "works longest" in fold


def luminance(colour: str) -> float:
    channels = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_contrast_in_light_and_in_dark(html: str) -> None:
    palettes = [dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", block)) for block in html.split(":root {")[1:3]]
    for palette in palettes:
        for ground in ("paper", "faint"):
            for text in ("ink", "soft", "link", "warn"):
                dark, light = sorted(luminance(palette[name]) for name in (text, ground))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (text, ground)


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
    assert row[1].count(">–</td>") == 6, "the peak of memory among them"


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
    assert len(Page(render_page(analysis, sections(analysis), ())).all("dt")) == 3
