"""What a Ray cluster is asked for: bundles, and how they may lie. Ray itself is not needed to say so."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from worldsize.config import LaunchSettings
from worldsize.errors import UsageError


@dataclass(frozen=True)
class Wanted:
    """What Ray is asked for."""

    workers: tuple[int, ...]
    """How many workers each bundle is for."""
    strategy: str
    """PACK, SPREAD or STRICT_SPREAD, as Ray means them."""
    gpus: bool
    """Whether each worker gets a GPU."""

    @classmethod
    def by(cls, launch: LaunchSettings, largest_world: int, *, gpus: bool) -> "Wanted":
        """A bundle for each worker; or for each node where --nodes or --workers-per-node say what one takes.

        Ray has no bound for the bundles of one node, but bundles that must be on different nodes. Raises UsageError.
        """
        nodes, on_each = launch.nodes, launch.workers_per_node
        if nodes is None and on_each is None:
            return cls((1,) * largest_world, "SPREAD" if launch.arrangement == "spread" else "PACK", gpus)
        on_each = on_each or math.ceil(largest_world / (nodes or 1))
        nodes = nodes or math.ceil(largest_world / on_each)
        if nodes * on_each < largest_world:
            raise UsageError(
                f"{nodes} node(s) with {on_each} worker(s) each were asked for, and a world size of {largest_world}\n"
                "Give more --nodes or --workers-per-node, or fewer workers."
            )
        return cls((on_each,) * nodes, "STRICT_SPREAD", gpus)

    @classmethod
    def of_nodes(cls, launch: LaunchSettings, rooms: Sequence[int], *, gpus: bool) -> "Wanted":
        """A bundle for each node, where no world sizes were given: --nodes of them, or all with room for its workers.

        `rooms` are the GPUs of each node, or its CPUs where there are no `gpus`. A node takes --workers-per-node, or as
        many as each of them has GPUs, or one.
        """
        largest = sorted(rooms, reverse=True)[: launch.nodes]
        on_each = launch.workers_per_node or (min(largest, default=1) if gpus else 1)
        nodes = launch.nodes or max(1, sum(room >= on_each for room in rooms))
        return cls((on_each,) * nodes, "STRICT_SPREAD", gpus)

    @property
    def bundles(self) -> list[dict[str, float]]:
        """A CPU for each worker, and a GPU on a cluster that has some."""
        return [{"CPU": n, "GPU": n} if self.gpus else {"CPU": n} for n in self.workers]

    def __str__(self) -> str:
        each = "1 CPU and 1 GPU" if self.gpus else "1 CPU"
        if self.strategy == "STRICT_SPREAD":
            return f"{self.workers[0]} worker(s) with {each} each on each of {len(self.workers)} node(s)"
        return f"{len(self.workers)} worker(s) with {each} each"
