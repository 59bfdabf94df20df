"""What the failures are held against."""

from pathlib import Path

import pytest

from failing import GRID, TRAINING, Place


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The study of support/failing.py, never disturbed."""
    place = Place(Path(tmp_path_factory.mktemp("whole")))
    place.undisturbed(*GRID, *TRAINING)
    return place
