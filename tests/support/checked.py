"""Charts whose definitions are checked against their schema, which costs too much outside of tests."""

import pytest

from worldsize.report import svg


@pytest.fixture(autouse=True)
def checked_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import it into a test module to have it for all of its tests."""
    monkeypatch.setattr(svg, "CHECKED", True)
    return
