"""One browser for all tests of this folder, the reports that they open, and the pictures they leave for a person."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from browsing import Scheme, Survey, Visit, find_browser, headless, survey, visit
from made_reports import RUNS
from traces import Traces
from worldsize.report.write import write_report

ROOT = Path(__file__).parents[2]
TAKEN = pytest.StashKey[list[Path]]()

Reports = Callable[[str], Path]
Surveys = Callable[[str], Survey]
Open = Callable[..., Visit]


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    """As in the whole tree, but for the processes of the shared browser: `browser` sees to those."""
    before = Traces.now()
    yield
    left = before.clean_up(children=False)
    if left:
        pytest.fail(f"the test left behind: {'; '.join(left)}")


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless browser; it ends with the last test of this folder, and leaves no process and no file behind."""
    program = find_browser()
    if program is None:
        pytest.skip("no browser here: install Debian's chromium, or name one in $WORLDSIZE_BROWSER")
    before, scratch = Traces.now(), tmp_path_factory.mktemp("browser")
    with headless(program, scratch) as started:
        yield started
    left = before.clean_up()
    left += [str(path) for path in scratch.glob("playwright*")]
    if left:
        pytest.fail(f"the browser left behind: {'; '.join(left)}")


@pytest.fixture(scope="package")
def report(tmp_path_factory: pytest.TempPathFactory) -> Reports:
    """The index.html of one of RUNS, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("runs")
    return cache(lambda name: write_report(RUNS[name](folder / name)))


@pytest.fixture(scope="package")
def seen(browser: Browser, report: Reports) -> Surveys:
    """What is seen of one of RUNS: each page is looked at once, for all tests."""
    return cache(lambda name: survey(browser, report(name)))


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens files; the test fails if any of them was not silent."""
    visits: list[Visit] = []
    with ExitStack() as stack:

        def open_file(file: Path, *, scripts: bool = True, scheme: Scheme = "light") -> Visit:
            visits.append(stack.enter_context(visit(browser, file, scripts=scripts, scheme=scheme)))
            return visits[-1]

        yield open_file
    heard = [said for each in visits for said in each.heard]
    assert heard == []


@pytest.fixture(scope="package")
def album(request: pytest.FixtureRequest) -> Callable[[str], Path]:
    """Where a picture of that name goes: $WORLDSIZE_ARTIFACTS or build/screenshots/; the folder is told at the end."""
    folder = Path(os.environ.get("WORLDSIZE_ARTIFACTS") or ROOT / "build" / "screenshots").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    taken = request.config.stash.setdefault(TAKEN, [])

    def place(name: str) -> Path:
        taken.append(folder / f"{name}.png")
        return taken[-1]

    return place


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say where the pictures are."""
    taken = config.stash.get(TAKEN, [])
    if taken:
        terminalreporter.write_line(f"{len(taken)} pictures of the reports: {taken[0].parent}")
