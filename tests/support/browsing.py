"""A headless browser that opens files from disk, and hears everything that a page must not do."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, sync_playwright

LOOK = (Path(__file__).parents[1] / "browser" / "look.js").read_text(encoding="utf-8")
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
LONG_MS = 60_000
"""Nothing here takes as long on a machine that does other things as well."""
SILENT = ("log", "info", "debug")
"""What a page may say to its console; it has no script, so it will not."""

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
WIDTHS = (360, 768, 1280)
"""A telephone, a tablet and a desk, in CSS pixels."""
NARROW_AND_WIDE = (min(WIDTHS), max(WIDTHS))
"""Where colours are looked at: what is shown between the two is shown in one of them."""


@dataclass
class Visit:
    """An open page, and what was heard of it."""

    page: Page
    own: set[str] = field(default_factory=set)
    """Addresses of the files that it was asked to open."""
    heard: list[str] = field(default_factory=list)
    """Requests beyond the page's own file, errors, warnings, dialogs, windows, downloads: a page is silent."""

    def go(self, file: Path) -> None:
        """Open a file from disk."""
        self.own.add(file.as_uri())
        self.page.goto(file.as_uri())
        self.page.evaluate(LOOK)

    def look(self, what: str) -> Any:
        """Call one of the functions of look.js."""
        return json.loads(self.page.evaluate(f"JSON.stringify(look.{what}() ?? null)"))

    def resize(self, width: int, height: int = 900) -> None:
        """Give the window another size, in CSS pixels."""
        self.page.set_viewport_size({"width": width, "height": height})

    def light(self, scheme: Scheme) -> None:
        """Ask for light or dark colours, as a reader's system does."""
        self.page.emulate_media(color_scheme=scheme)


@dataclass(frozen=True)
class Survey:
    """All that was seen of a page, with everything that is folded opened."""

    file: Path
    heard: list[str]
    folded: str
    """Its text, before anything was opened."""
    structure: dict[str, Any]
    rooms: dict[int, dict[str, Any]]
    """By width of the window."""
    contrasts: dict[tuple[int, Scheme], list[dict[str, Any]]]
    papers: dict[Scheme, tuple[float, ...]]
    """Red, green, blue and opacity of what the page is written on."""


def find_browser() -> str | None:
    """The program to drive: $WORLDSIZE_BROWSER, or the first that is installed; None without any."""
    return os.environ.get("WORLDSIZE_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def headless(program: str, scratch: Path) -> Iterator[Browser]:
    """A browser that writes its profile and all else into `scratch`, and has ended when the context ends."""
    places = dict.fromkeys(("HOME", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(scratch))
    with _environment(places):  # the driver, which makes the folder of the profile, takes it from here
        manager = sync_playwright()
        playwright = manager.start()
    try:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS, timeout=LONG_MS)
        yield browser
        browser.close()
    finally:
        playwright.stop()


@contextmanager
def visit(browser: Browser, file: Path, *, scripts: bool = True, scheme: Scheme = "light") -> Iterator[Visit]:
    """Open a file from disk in a window of its own, off line, and listen."""
    context = browser.new_context(
        offline=True, java_script_enabled=scripts, color_scheme=scheme, viewport={"width": 1280, "height": 900}
    )
    try:
        context.set_default_timeout(LONG_MS)
        found = Visit(context.new_page())
        _listen(found)
        found.go(file)
        yield found
    finally:
        context.close()


def survey(browser: Browser, file: Path) -> Survey:
    """Look at a page in windows of three widths, in light and in dark."""
    rooms, contrasts, papers = {}, {}, {}
    with visit(browser, file) as seen:
        folded = seen.look("text")
        seen.look("open")
        for width in WIDTHS:
            seen.resize(width)
            rooms[width] = seen.look("room")
            for scheme in SCHEMES if width in NARROW_AND_WIDE else ():
                seen.light(scheme)
                contrasts[width, scheme] = seen.look("contrasts")
                papers[scheme] = tuple(seen.look("ground"))
        return Survey(file, seen.heard, folded, seen.look("structure"), rooms, contrasts, papers)


def _listen(found: Visit) -> None:
    page, heard = found.page, found.heard

    def own(url: str) -> bool:
        return url.split("#")[0] in found.own or url.startswith("data:")

    page.on("console", lambda said: heard.append(f"console: {said.text}") if said.type not in SILENT else None)
    page.on("pageerror", lambda error: heard.append(f"error: {error}"))
    page.on("request", lambda asked: heard.append(f"request: {asked.url[:200]}") if not own(asked.url) else None)
    page.on("websocket", lambda socket: heard.append(f"socket: {socket.url}"))
    page.on("popup", lambda window: heard.append(f"window: {window.url}"))
    page.on("download", lambda file: heard.append(f"download: {file.url}"))
    page.on("crash", lambda _: heard.append("the page crashed"))

    def dialog(opened: Any) -> None:
        heard.append(f"dialog: {opened.message}")
        opened.dismiss()

    page.on("dialog", dialog)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
