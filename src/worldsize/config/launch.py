"""Settings of the launch: with whose engine the workers are started, on how many nodes; no result depends on them."""

from typing import Literal, Self

from pydantic import model_validator

from worldsize.config.base import MAX_WORKERS, Settings, absent
from worldsize.errors import UsageError

Launcher = Literal["local", "slurm", "ray"]
OWNED_BY: dict[str, tuple[Launcher, ...]] = {
    "nodes": ("slurm", "ray"),
    "workers_per_node": ("slurm", "ray"),
    "partition": ("slurm",),
    "time": ("slurm",),
    "print_script": ("slurm",),
    "address": ("ray",),
    "arrangement": ("ray",),
}
"""Settings that only some launchers have."""


DEFAULT_PORT = 29500
"""The port that torchrun takes, too."""


class ByHandSettings(Settings):
    """Which node this is, where a command is started by hand on each."""

    master_ip: str
    """Manual start on each node: address of node 0."""
    master_port: int = DEFAULT_PORT
    """Manual start: a free port on node 0."""
    num_nodes: int
    """Manual start: number of nodes, as torchrun's --nnodes."""
    rank: int
    """Manual start: number of this node, from 0."""


class LaunchSettings(Settings):
    """Who starts the workers, and where."""

    launcher: Launcher = "local"
    """Launcher: what starts the workers."""
    nodes: int | None = absent("enough for the largest world size", ge=1, le=MAX_WORKERS)
    """Slurm, Ray: number of nodes. None is enough for the largest world size; without one, all (Ray) or one (Slurm)."""
    workers_per_node: int | None = absent("as many as it has GPUs, or one", ge=1, le=MAX_WORKERS)
    """Slurm, Ray: workers per node, at most. None is as many as it has GPUs, or one."""
    partition: str | None = absent("cluster default", min_length=1)
    """Slurm: partition."""
    time: str | None = absent("none; Slurm requires one", min_length=1)
    """Slurm: time limit of the job, in minutes or [days-]h:m:s."""
    print_script: bool = False
    """Slurm: print the batch script; submit nothing."""
    address: str | None = absent("RAY_ADDRESS, or a cluster on this machine", min_length=1)
    """Ray: address of a running cluster (worldsize starts none). None is the one that RAY_ADDRESS names, or one
    that runs here."""
    arrangement: Literal["packed", "spread"] | None = absent("packed")
    """Ray: placement, workers packed on few nodes or spread over many."""

    @property
    def of_commands(self) -> Self:
        """The same for commands: on Ray all workers are on one node, unless it was said that they are on several."""
        said = self.nodes or self.arrangement == "spread"
        return self if self.launcher != "ray" or said else self.model_copy(update={"nodes": 1})

    @property
    def workers(self) -> int:
        """All workers of the nodes that are asked for, or one where none are.

        Raises UsageError where only the nodes themselves can tell: by their GPUs.
        """
        if self.nodes and not self.workers_per_node:
            raise UsageError(
                f"--nodes {self.nodes} was given, and neither a world size nor --workers-per-node\n"
                "Give --world-size: how many workers train."
            )
        return (self.nodes or 1) * (self.workers_per_node or 1)

    @model_validator(mode="after")
    def _of_this_launcher(self) -> Self:
        for name, owners in OWNED_BY.items():
            if getattr(self, name) and self.launcher not in owners:
                flag = name.replace("_", "-")
                raise ValueError(f"--{flag} belongs to --launcher {' or '.join(owners)}; --launcher is {self.launcher}")
        return self
