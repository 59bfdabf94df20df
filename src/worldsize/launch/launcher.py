"""The cluster that `--launcher` names; what belongs to one engine is imported only when it is asked for."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

from worldsize.config import LaunchSettings
from worldsize.errors import UsageError
from worldsize.launch.cluster import Cluster, ThisMachine


@contextmanager
def cluster_for(launch: LaunchSettings, largest_world: int | None) -> Iterator[Cluster]:
    """The nodes for up to `largest_world` workers, for the length of this context; where it is None, those of `launch`.

    Raises UsageError where they cannot be had. A study under Slurm is submitted, and finds its nodes inside the job
    (launch/slurm/).
    """
    if launch.launcher == "ray":
        if importlib.util.find_spec("ray") is None:
            raise UsageError("--launcher ray needs the package ray: pip install 'worldsize[ray]'")
        from worldsize.launch.ray.cluster import ray_cluster

        with ray_cluster(launch, largest_world) as cluster:
            yield cluster
        return
    if launch.launcher == "slurm":
        from worldsize.launch.slurm.cluster import SlurmCluster

        yield SlurmCluster(launch.workers_per_node)
        return
    yield ThisMachine()
