"""Places for workers on a Ray cluster: a placement group, and on which nodes Ray has put it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from worldsize.errors import UsageError
from worldsize.launch.job import Node
from worldsize.launch.ray.wanted import Wanted

PATIENCE_S = 15.0
"""How long Ray may take to find room; on a cluster that has it, it takes far less than a second."""
GPUS = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Place:
    """A node, the bundles that lie on it, and what its workers need to know."""

    node: Node
    bundles: tuple[int, ...]
    group: PlacementGroup

    @property
    def inside(self) -> PlacementGroupSchedulingStrategy:
        """Where what is started for this node goes."""
        return PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=self.bundles[0])


@contextmanager
def places_for(wanted: Wanted) -> Iterator[list[Place]]:
    """The nodes that Ray chooses, that with most workers first, held for this context. Raises UsageError."""
    group = placement_group(wanted.bundles, strategy=wanted.strategy)
    try:
        if not group.wait(PATIENCE_S):
            raise UsageError(
                f"Ray found no room for {wanted} within {PATIENCE_S:.0f} s\n"
                f"The cluster has {_inventory()}; {_words(ray.available_resources())} are free."
            )
        yield _places(group, wanted)
    finally:
        remove_placement_group(group)


def _places(group: PlacementGroup, wanted: Wanted) -> list[Place]:
    on_node: dict[str, list[int]] = {}
    for bundle, node in placement_group_table(group)["bundles_to_node_id"].items():
        on_node.setdefault(node, []).append(int(bundle))
    about = {node["NodeID"]: node for node in ray.nodes()}
    places = [
        Place(
            Node(
                # Several nodes of one cluster may be on one host.
                name=f"{about[key]['NodeManagerHostname']}-{key[:6]}",
                address=about[key]["NodeManagerAddress"],
                processes=sum(wanted.workers[bundle] for bundle in bundles),
            ),
            tuple(sorted(bundles)),
            group,
        )
        for key, bundles in on_node.items()
    ]
    return sorted(places, key=lambda place: (-place.node.processes, place.bundles))


def gpus_of(place: Place, wanted: Wanted) -> dict[str, str]:
    """The variable that shows a node's workers the GPUs of all its bundles, and no others; nothing without GPUs.

    Ray keeps the same ones for a bundle as long as it stands; each is asked, because an actor sees those of one.
    """
    if not wanted.gpus:
        return {}
    asked = [
        ray.remote(_my_gpus)
        .options(num_cpus=0, num_gpus=wanted.workers[bundle], scheduling_strategy=_in(place, bundle))
        .remote()
        for bundle in place.bundles
    ]
    return {GPUS: ",".join(filter(None, ray.get(asked)))}


def _in(place: Place, bundle: int) -> PlacementGroupSchedulingStrategy:
    return PlacementGroupSchedulingStrategy(place.group, placement_group_bundle_index=bundle)


def _my_gpus() -> str:
    return os.environ.get(GPUS, "")


def has_gpus() -> bool:
    """Whether the cluster has GPUs, as far as Ray was told."""
    return bool(ray.cluster_resources().get("GPU"))


def rooms() -> list[int]:
    """How many workers each node could take: as many as it has GPUs, or CPUs on a cluster without GPUs."""
    kind = "GPU" if has_gpus() else "CPU"
    return [room for has in _alive() if (room := int(has.get(kind, 0)))]


def _alive() -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _inventory() -> str:
    alive = _alive()
    return f"{len(alive)} node(s) with {', '.join(_words(has) for has in alive)}"


def _words(resources: dict[str, float]) -> str:
    cpus, gpus = resources.get("CPU", 0), resources.get("GPU", 0)
    return f"{cpus:g} CPU(s)" + (f" and {gpus:g} GPU(s)" if gpus else "")
