"""The page of an audit is looked at as the others are: its room, its colours, its structure, a stranger's text."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from markdown_it import MarkdownIt
from playwright.sync_api import Browser

from browser.conftest import Open
from browser.test_colours import MIN
from browser.test_structure import RULES
from browsing import WIDTHS, Survey, survey
from made_audits import MADE_UP, audited, hostile
from worldsize.report.audit_page import write_audit_page
from worldsize.report.audit_text import audit_markdown

AUDITS = {"made-up": lambda: audited(MADE_UP), "hostile": hostile}
OWN_TAGS = {"h1", "h2", "h3", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "strong"}
every_audit = pytest.mark.parametrize("name", AUDITS)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("audits")
    for name, make in AUDITS.items():
        write_audit_page(make(), folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in AUDITS}


@pytest.fixture(scope="module")
def looked_at(browser: Browser, pages: dict[str, Path]) -> dict[str, Survey]:
    return {name: survey(browser, page) for name, page in pages.items()}


@every_audit
def test_it_is_silent_and_has_room(looked_at: dict[str, Survey], name: str) -> None:
    found = looked_at[name]
    assert found.heard == []
    assert [found.rooms[width]["sideways"] for width in WIDTHS] == [[]] * len(WIDTHS)
    assert found.structure["title"].startswith("Audit of"), "nobody else has set it"


@every_audit
def test_its_text_can_be_read_in_light_and_dark(looked_at: dict[str, Survey], name: str) -> None:
    found = looked_at[name]
    assert [each for seen in found.contrasts.values() for each in seen if each["contrast"] < MIN] == []
    assert min(found.papers["light"][:3]) > 200
    assert max(found.papers["dark"][:3]) < 60


@every_audit
def test_axe_finds_nothing(opened: Open, pages: dict[str, Path], name: str) -> None:
    page = opened(pages[name])
    page.look("open")
    violations = Axe().run(page.page, options=RULES).response["violations"]
    assert [(each["id"], each["help"], [node["html"] for node in each["nodes"]][:3]) for each in violations] == []


def test_a_mark_leads_to_its_finding(opened: Open, pages: dict[str, Path]) -> None:
    page = opened(pages["made-up"], scripts=False).page
    page.get_by_role("link", name="FAIL, finding 1").first.click()
    assert page.url.endswith("#finding-1")
    page.locator("#finding-1").get_by_role("link", name="87 %").click()
    assert page.url.endswith("#t1-r3-c4")


def test_markdown_shows_what_a_stranger_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    monkeypatch.setattr(reader, "validateLink", lambda _: True)  # somebody else's reader may be careless
    html = reader.render(audit_markdown(hostile()))
    assert set(re.findall(r"<([a-z0-9]+)", html)) <= OWN_TAGS
