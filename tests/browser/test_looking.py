"""What the other tests look for is found where it is: on a page that does everything wrong."""

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from browsing import Survey, survey, visit

FLAWED = """<!DOCTYPE html>
<html><head><style>
body { background: #fff; color: #000; margin: 0 }
a:focus { outline: none }
.pale { color: #999 }
@media (prefers-color-scheme: dark) { .dark { color: #111; background: #222 } }
</style></head>
<body>
<h1 id="twice">A</h1><h3 id="twice">B</h3>
<p class="pale">pale</p><p class="dark">dark on dark</p><p style="color: #767676">fair</p>
<p style="opacity: 0.4">faded</p>
<div style="width: 2000px">wide</div>
<div style="width: 50px; overflow: hidden; white-space: nowrap">a line that is cut off</div>
<div style="width: 100px; overflow-x: auto">
<table><tr><th>a column</th><td>several words of text</td></tr></table></div>
<figure><div style="display: none"><svg width="200" height="50"><rect width="9" height="9"/></svg></div></figure>
<figure><svg width="200" height="50"><rect width="200" height="50" fill="#0072B2"/>
  <text x="20" y="20">on blue</text><text x="30" y="22">on blue as well</text>
  <text x="150" y="40">beyond the frame</text>
</svg></figure>
<p><a href="#nowhere">link</a> <a href="missing.csv" tabindex="0">missing</a></p>
<details><summary>more</summary><p class="folded" style="color: #aaa">folded</p></details>
<span style="position: absolute; width: 1px; height: 1px; overflow: hidden">for screen readers, at length</span>
<img src="http://127.0.0.1:9/x.png">
<script>console.warn("careful"); alert("here"); window.open("about:blank"); undefined.x</script>
</body></html>
"""


@pytest.fixture(scope="module")
def flawed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("flawed") / "index.html"
    file.write_text(FLAWED, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def found(browser: Browser, flawed: Path) -> Survey:
    return survey(browser, flawed)


def words(told: list[Any]) -> str:
    return " ".join(str(each) for each in told)


def test_what_a_page_says_and_asks_for_is_heard(found: Survey) -> None:
    heard = " ".join(found.heard)
    for said in ("console: careful", "dialog: here", "request: http://127.0.0.1:9/x.png", "window: ", "error: "):
        assert said in heard, heard


def test_text_that_cannot_be_read_is_found(found: Survey) -> None:
    light, dark = found.contrasts[1280, "light"], found.contrasts[1280, "dark"]
    poor = {each["what"].split("“")[1].rstrip("”"): each["contrast"] for each in light if each["contrast"] < 4.5}
    assert {"pale", "faded", "folded", "on blue", "on blue as well"} <= set(poor)
    assert "fair" not in poor
    assert poor["pale"] == pytest.approx(2.85, abs=0.01)
    assert poor["on blue"] == pytest.approx(4.06, abs=0.05), "black on #0072B2"
    assert "dark on dark" not in poor
    assert "dark on dark" in words([each for each in dark if each["contrast"] < 4.5])


def test_what_has_no_room_is_found(found: Survey) -> None:
    room = found.rooms[1280]
    assert "the page is 2000 wide" in room["sideways"]
    sideways = words(room["sideways"])
    assert "outside: div “wide”" in sideways
    assert "cut: div “a line that is cut off”" in sideways
    assert "screen readers" not in sideways
    [scroller] = room["scrollers"]
    assert (scroller["hides"], scroller["reachable"], scroller["name"]) == (True, False, "")
    assert "beyond the frame" in words(room["cut"])
    assert "on blue" in words(room["collisions"])
    assert [len(figure["charts"]) for figure in room["figures"]] == [0, 1]


def test_what_a_screen_reader_needs_is_missed(found: Survey) -> None:
    seen = found.structure
    assert (seen["language"], seen["title"], seen["mains"], seen["levels"]) == ("", "", 0, [1, 3])
    assert seen["ids"] == ["twice", "twice"]
    assert seen["tables"][0]["caption"] == ""
    assert seen["tables"][0]["headers"] == [""]
    assert [(chart["role"], chart["name"]) for chart in seen["svgs"]] == [(None, "")]
    assert [link["href"] for link in seen["links"]] == ["#nowhere", "missing.csv"]


def test_a_focus_that_is_not_seen_is_found(browser: Browser, flawed: Path) -> None:
    with visit(browser, flawed) as page:
        seen = {}
        for _ in range(5):
            page.page.keyboard.press("Tab")
            here = page.look("focused")
            if here:
                seen[here["what"].split(" ")[0]] = here["ring"]
    assert seen["a"] is False
    assert seen["summary"] is True
