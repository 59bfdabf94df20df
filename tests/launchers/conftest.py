"""A Ray cluster for all tests of this folder, and the studies that several of them look at."""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from ray_nodes import RayNodes, ray_nodes
from same_study import over_two_nodes, plain, study, under_torchrun
from slurm_here import Slurm, missing, slurm_here
from worldsize.results.folder import Run

Studies = Callable[[str], Run]


@pytest.fixture(scope="package")
def ray() -> Iterator[RayNodes]:
    """Two nodes that are on this machine."""
    with ray_nodes() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def slurm() -> Iterator[Slurm | None]:
    """Two nodes that are on this machine; None where there can be none."""
    if missing():
        yield None
        return
    with slurm_here() as cluster:
        yield cluster


@pytest.fixture(scope="package")
def studies(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest, slurm: Slurm | None) -> Studies:
    """The same `sync-ladder`, finished under the launcher of this name; each is run once, when it is asked for."""

    def on_ray() -> list[str]:
        cluster: RayNodes = request.getfixturevalue("ray")
        return plain("--launcher", "ray", "--address", cluster.address, "--arrangement", "spread")

    def on_slurm() -> list[str]:
        if slurm is None:
            pytest.skip(missing())
        variables.update(slurm.variables)
        return plain("--launcher", "slurm", "--nodes", "2", "--time", "20")

    commands = {
        "local": plain,
        "torchrun": under_torchrun,
        "nodes": over_two_nodes,
        "slurm": on_slurm,
        "ray": on_ray,
    }
    variables: dict[str, str] = {}

    @cache
    def finished(launcher: str) -> Run:
        variables.clear()
        command = commands[launcher]()
        return study(tmp_path_factory.mktemp(launcher), command, variables)

    return finished
