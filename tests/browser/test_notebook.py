"""The notebook of the documentation: a real kernel runs it, and a browser shows what its cells leave."""

from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from playwright.sync_api import Browser

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


def read() -> Any:
    return nbformat.reads(NOTEBOOK.read_text(), as_version=4)  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Any:
    notebook = read()
    place = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(place)}}).execute()
    return notebook


def outputs(notebook: Any, kind: str) -> list[str]:
    found = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return ["".join(output["data"][kind]) for output in found if kind in output.get("data", {})]


def test_it_is_kept_without_outputs_and_with_about_ten_cells() -> None:
    notebook = read()
    nbformat.validate(notebook)
    assert 8 <= len(notebook.cells) <= 14
    assert not any(cell.get("outputs") for cell in notebook.cells)


def test_progress_and_verdict_stand_below_the_cell(ran: Any) -> None:
    told = outputs(ran, "text/plain")
    assert any("starting ddp-w2-b64" in text for text in told)
    assert any("worldsize.Run in runs/notebook" in text for text in told)


def test_a_browser_shows_verdict_results_and_chart(ran: Any, browser: Browser, tmp_path: Path) -> None:
    [shown] = [html for html in outputs(ran, "text/html") if "worldsize.Run in" in html]
    (tmp_path / "cell.html").write_text(f"<!doctype html><meta charset=utf-8><body>{shown}</body>")
    page = browser.new_page()
    try:
        page.goto((tmp_path / "cell.html").as_uri())
        assert page.locator("b").first.is_visible()
        assert page.locator("tbody tr").count() == 4  # one worker with all cores among them
        box = page.locator("svg").bounding_box()
        assert box is not None
        assert box["width"] > 300
    finally:
        page.close()
