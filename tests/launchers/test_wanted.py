"""What Ray is asked for, by the flags; no cluster is needed."""

from typing import Any

import pytest

from worldsize.config import LaunchSettings
from worldsize.errors import UsageError
from worldsize.launch.launcher import cluster_for
from worldsize.launch.ray.wanted import Wanted


@pytest.mark.parametrize(
    ("flags", "workers", "strategy"),
    [
        ({}, (1, 1, 1, 1), "PACK"),
        ({"arrangement": "packed"}, (1, 1, 1, 1), "PACK"),
        ({"arrangement": "spread"}, (1, 1, 1, 1), "SPREAD"),
        ({"workers_per_node": 1}, (1, 1, 1, 1), "STRICT_SPREAD"),
        ({"workers_per_node": 3}, (3, 3), "STRICT_SPREAD"),
        ({"nodes": 2}, (2, 2), "STRICT_SPREAD"),
        ({"nodes": 3, "workers_per_node": 2}, (2, 2, 2), "STRICT_SPREAD"),
    ],
)
def test_four_workers(flags: dict[str, Any], workers: tuple[int, ...], strategy: str) -> None:
    wanted = Wanted.by(LaunchSettings(launcher="ray", **flags), 4, gpus=False)
    assert (wanted.workers, wanted.strategy) == (workers, strategy)


def test_a_worker_takes_a_gpu_where_the_cluster_has_some() -> None:
    wanted = Wanted.by(LaunchSettings(launcher="ray", nodes=2), 4, gpus=True)
    assert wanted.bundles == [{"CPU": 2, "GPU": 2}] * 2
    assert str(wanted) == "2 worker(s) with 1 CPU and 1 GPU each on each of 2 node(s)"


@pytest.mark.parametrize(
    ("flags", "rooms", "gpus", "workers"),
    [
        ({}, (4, 4, 64), False, (1, 1, 1)),
        ({}, (8, 8), True, (8, 8)),
        ({}, (8, 4), True, (4, 4)),
        ({}, (), False, (1,)),
        ({"nodes": 8}, (4,) * 16, False, (1,) * 8),
        ({"nodes": 2}, (2, 8, 8), True, (8, 8)),
        ({"nodes": 8, "workers_per_node": 2}, (4,) * 16, False, (2,) * 8),
        ({"workers_per_node": 2}, (1, 2, 4), False, (2, 2)),
    ],
)
def test_without_world_sizes_all_workers_of_the_nodes(
    flags: dict[str, Any], rooms: tuple[int, ...], gpus: bool, workers: tuple[int, ...]
) -> None:
    wanted = Wanted.of_nodes(LaunchSettings(launcher="ray", **flags), rooms, gpus=gpus)
    assert (wanted.workers, wanted.strategy) == (workers, "STRICT_SPREAD")


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [({}, 1), ({"arrangement": "packed"}, 1), ({"workers_per_node": 4}, 1), ({"nodes": 2}, 2)],
)
def test_the_workers_of_commands_are_on_one_node_unless_nodes_were_given(flags: dict[str, Any], nodes: int) -> None:
    assert LaunchSettings(launcher="ray", **flags).of_commands.nodes == nodes


def test_commands_elsewhere_than_on_ray_or_spread_ones_are_placed_as_was_asked() -> None:
    assert LaunchSettings(launcher="slurm").of_commands.nodes is None
    assert LaunchSettings(launcher="ray", arrangement="spread").of_commands.nodes is None


def test_nodes_that_cannot_take_all_workers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"2 node\(s\) with 1 worker\(s\) each were asked for, and a world size of 4"):
        Wanted.by(LaunchSettings(launcher="ray", nodes=2, workers_per_node=1), 4, gpus=False)


def test_without_the_package_a_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        pytest.raises(UsageError, match=r"pip install 'worldsize\[ray\]'"),
        cluster_for(LaunchSettings(launcher="ray"), 2),
    ):
        pass
