"""Pictures of the reports for a person to look at: this test only sees that they were taken."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Error, Page

from browser.conftest import Open, Reports
from browsing import SCHEMES
from made_reports import EXPERIMENT_RUNS

SIZES = {"narrow": 390, "wide": 1280}


@pytest.mark.parametrize("name", EXPERIMENT_RUNS)
def test_pictures(opened: Open, report: Reports, album: Callable[[str], Path], name: str) -> None:
    page = opened(report(name))
    for size, width in SIZES.items():
        page.resize(width)
        for scheme in SCHEMES:
            page.light(scheme)
            taken = album(f"{name}-{size}-{scheme}")
            _take(page.page, taken)
            assert taken.stat().st_size > 10_000


def _take(page: Page, file: Path) -> None:
    """Take the picture of a whole page; once more where the browser had no frame at hand.

    While other tests use all cores, chromium has once answered "Unable to capture screenshot" in some fifty runs.
    """
    try:
        page.screenshot(path=file, full_page=True, animations="disabled")
    except Error:
        page.screenshot(path=file, full_page=True, animations="disabled")
