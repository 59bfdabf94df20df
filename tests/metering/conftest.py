"""What the tests of the meter share."""

from collections.abc import Iterator

import pytest

from own_loops import WarmLoops, warm_loops


@pytest.fixture(scope="session")
def loops() -> Iterator[WarmLoops]:
    """Where loops are run, one after the other."""
    with warm_loops() as found:
        yield found
