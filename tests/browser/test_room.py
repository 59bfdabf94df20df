"""Charts are drawn and text has room: on a telephone, a tablet and a desk, and on paper."""

import re
from typing import Any

import pytest

from browser.conftest import Open, Reports, Surveys
from browsing import WIDTHS, Visit
from made_reports import EXPERIMENT_RUNS, RUNS

PX_PER_MM = 96 / 25.4
PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
"""mm."""

every_report = pytest.mark.parametrize("name", RUNS)
every_width = pytest.mark.parametrize("width", WIDTHS)


@every_report
@every_width
def test_every_chart_is_drawn(seen: Surveys, name: str, width: int) -> None:
    room = seen(name).rooms[width]
    assert room["figures"]
    assert [figure["what"] for figure in room["figures"] if not figure["charts"]] == [], "nothing is shown"
    for chart in room["charts"]:
        assert chart["hidden"] or (chart["width"] > 150 and chart["height"] > 20 and chart["marks"] > 2), chart


@every_report
@every_width
def test_nothing_is_wider_than_the_window(seen: Surveys, name: str, width: int) -> None:
    assert seen(name).rooms[width]["sideways"] == []


@every_report
@every_width
def test_words_of_charts_are_whole_and_apart(seen: Surveys, name: str, width: int) -> None:
    room = seen(name).rooms[width]
    assert room["cut"] == []
    assert room["collisions"] == []


@pytest.mark.parametrize("name", EXPERIMENT_RUNS)
def test_what_to_try_is_in_sight_on_a_small_laptop(opened: Open, report: Reports, name: str) -> None:
    page = opened(report(name)).page
    page.set_viewport_size({"width": 1280, "height": 800})
    command, next_step = page.locator(".first pre"), page.locator(".first p", has_text="Next step")
    box = (command if command.count() else next_step).bounding_box()  # not all advice has a command
    assert box is not None
    assert 0 < box["y"] + box["height"] <= 800, "what to do ends above the lower edge of the window"


@every_report
def test_what_scrolls_can_be_reached_and_has_a_name(seen: Surveys, name: str) -> None:
    hiding = [each for each in seen(name).rooms[360]["scrollers"] if each["hides"]]
    assert hiding, "no table is wider than a telephone"
    assert [each for each in hiding if not (each["reachable"] and each["role"] == "region" and each["name"])] == []


@every_report
def test_fits_on_paper(opened: Open, report: Reports, name: str) -> None:
    page = opened(report(name))
    page.page.emulate_media(media="print")
    page.resize(int(_printable_px(page)))
    room = page.look("room")
    assert room["sideways"] == []
    assert [each["what"] for each in room["scrollers"] if each["hides"]] == [], "paper does not scroll"
    assert room["cut"] == []
    assert room["figures"]
    assert [figure["what"] for figure in room["figures"] if len(figure["charts"]) != 1] == [], "one drawing each"


@pytest.mark.parametrize("name", EXPERIMENT_RUNS)
def test_prints(opened: Open, report: Reports, name: str) -> None:
    printed = opened(report(name)).page.pdf(prefer_css_page_size=True)
    pages = len(re.findall(rb"/Type\s*/Page\b", printed))
    assert 1 < pages < 40


def _printable_px(page: Visit) -> float:
    """Width between the margins that the page asks for; A4, upright, with 10 mm where it asks for nothing."""
    asked: dict[str, Any] = page.look("paper") or {"size": "", "margin": ""}
    names = asked["size"].lower().split()
    size = next((PAPERS[name] for name in names if name in PAPERS), PAPERS["a4"])
    width = max(size) if "landscape" in names else min(size)
    margins = [float(number) for number in re.findall(r"([\d.]+)mm", asked["margin"])] or [10.0]
    return (width - 2 * margins[min(1, len(margins) - 1)]) * PX_PER_MM
