"""What the failures are held against."""

from pathlib import Path

import pytest

from commands import finish
from failing import Place


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The study of support/failing.py, never disturbed."""
    place = Place(Path(tmp_path_factory.mktemp("whole")))
    done = finish(place.go_on(SLOW_S="0"), place.folder)
    assert done.returncode == 0, done.stderr
    assert place.left() == []
    return place
