"""A report opens from disk, off line and without a script, and says nothing to the browser's console."""

from urllib.parse import unquote, urlsplit

import pytest

from browser.conftest import Open, Reports, Surveys
from made_reports import RUNS

every_report = pytest.mark.parametrize("name", RUNS)


@every_report
def test_is_silent(seen: Surveys, name: str) -> None:
    assert seen(name).heard == []


@every_report
def test_shows_the_same_without_scripts(opened: Open, seen: Surveys, name: str) -> None:
    page = opened(seen(name).file, scripts=False)
    assert len(page.look("text")) > 1000
    assert page.look("text") == seen(name).folded
    page.look("open")
    assert page.look("room")["charts"] == seen(name).rooms[1280]["charts"]


@every_report
def test_every_link_leads_somewhere(seen: Surveys, name: str) -> None:
    file, found = seen(name).file, seen(name).structure
    links = [link["href"] for link in found["links"]]
    assert all(links), "a link without an address"
    inside = {unquote(link[1:]) for link in links if link.startswith("#")}
    assert inside
    assert inside <= {*found["ids"], "top"}
    outside = [link for link in links if not link.startswith("#")]
    assert outside
    assert [link for link in outside if urlsplit(link).scheme or urlsplit(link).netloc] == [], "not a file"
    assert [link for link in outside if not (file.parent / unquote(urlsplit(link).path)).exists()] == []


@pytest.mark.parametrize("name", ["ddp-large-batch", "failures"])
def test_charts_are_files_that_open_by_themselves(opened: Open, report: Reports, name: str) -> None:
    drawings = sorted(report(name).parent.glob("*.svg"))
    assert drawings
    page = opened(drawings[0])
    for drawing in drawings:
        page.go(drawing)
        found = page.look("room")
        assert found["charts"][0]["marks"] > 2
        assert found["cut"] == []
        for ground in ("#fff", "#000"):
            page.page.evaluate(f"document.documentElement.style.background = '{ground}'")
            assert [each for each in page.look("contrasts") if each["contrast"] < 4] == [], drawing.name


@every_report
def test_the_page_is_small(report: Reports, name: str) -> None:
    assert report(name).stat().st_size < 5_000_000
