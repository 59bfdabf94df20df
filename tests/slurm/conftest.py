"""One Slurm for all tests of this folder."""

from collections.abc import Iterator

import pytest

from slurm_here import Slurm, missing, slurm_here


@pytest.fixture(scope="package")
def cluster() -> Iterator[Slurm]:
    """Two nodes; skipped, with the reason, where there can be none."""
    reason = missing()
    if reason:
        pytest.skip(reason)
    with slurm_here() as slurm:
        yield slurm


@pytest.fixture
def slurm(cluster: Slurm) -> Iterator[Slurm]:
    """The same, with no job before and none afterwards."""
    yield cluster
    cluster.clear()
