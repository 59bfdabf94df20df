"""The command line over two nodes of nodes_here.py: `python nodes_command.py ARGS` is `worldsize ARGS` there."""

from collections.abc import Iterator
from contextlib import contextmanager

from nodes_here import NodesHere
from worldsize.cli.app import main
from worldsize.config import LaunchSettings
from worldsize.launch import launcher
from worldsize.launch.cluster import Cluster


@contextmanager
def _two_nodes(launch: LaunchSettings, largest_world: int | None) -> Iterator[Cluster]:
    yield NodesHere((1, 1))


if __name__ == "__main__":
    launcher.cluster_for = _two_nodes
    main()
