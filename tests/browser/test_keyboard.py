"""Everything is reached by keyboard, in the order in which it is read, and one sees where one is."""

from typing import Any

import pytest

from browser.conftest import Open, Reports

MAX = 400
"""Stops of a page; more would be an endless loop."""


@pytest.mark.parametrize(("name", "width"), [("sync-ladder", 360), ("failures", 1280)])
def test_tab_visits_everything_in_reading_order(opened: Open, report: Reports, name: str, width: int) -> None:
    page = opened(report(name))
    page.resize(width)
    wanted = page.look("stops")
    assert len(wanted) > 10
    stops: list[dict[str, Any]] = []
    for _ in range(MAX):
        page.page.keyboard.press("Tab")
        here = page.look("focused")
        if here is None or (stops and here["place"] == stops[0]["place"]):
            break
        stops.append(here)
    places = [stop["place"] for stop in stops]
    assert places == sorted(places), "the focus jumps"
    assert [each for each in wanted if each["place"] not in places] == [], "never reached"
    assert [stop["what"] for stop in stops if not stop["ring"]] == [], "focus is not seen"
    assert [stop["what"] for stop in stops if not stop["visible"]] == [], "focus is outside the window"


def test_enter_opens_what_is_folded(opened: Open, report: Reports) -> None:
    page = opened(report("sync-ladder"), scripts=False)
    folded = [each for each in page.page.locator("summary").all() if each.is_visible()]
    if not folded:
        pytest.skip("nothing is folded on this page")
    for summary in folded[:3]:
        before = summary.evaluate("each => each.parentElement.open")
        summary.press("Enter")
        assert summary.evaluate("each => each.parentElement.open") is not before


def test_arrows_scroll_a_wide_table(opened: Open, report: Reports) -> None:
    page = opened(report("sync-ladder"))
    page.resize(360)
    hiding = [each for each in page.page.get_by_role("region").all() if each.evaluate(HIDES)]
    assert hiding
    hiding[0].focus()
    page.page.keyboard.press("ArrowRight")
    page.page.wait_for_function("each => each.scrollLeft > 0", arg=hiding[0].element_handle())


HIDES = "each => each.scrollWidth > each.clientWidth + 1 && each.checkVisibility()"
