"""Which cores, and how many threads, each worker gets; the same for every cell of a study (method.md §8)."""

from collections.abc import Sequence

from worldsize.launch.job import Node
from worldsize.results.records import Placement


def place(
    *,
    world_size: int,
    processes: int,
    threads_per_worker: int,
    cores: Sequence[int],
    gpus: int,
    backend: str,
) -> Placement:
    """Give each worker its own cores, in order; more threads than cores go round and mark the cell oversubscribed.

    `cores` are those that this process may use, `gpus` how many devices there are. With GPUs, more workers than
    devices cannot run: that is the caller's check.
    """
    wanted = world_size * threads_per_worker
    ring = [cores[i % len(cores)] for i in range(wanted)]
    own = tuple(tuple(ring[i * threads_per_worker : (i + 1) * threads_per_worker]) for i in range(world_size))
    on_gpu = gpus > 0 and backend != "gloo"
    if backend == "auto":
        backend = "nccl" if on_gpu else "gloo"
    return Placement(
        processes=processes,
        threads_per_worker=threads_per_worker,
        cores=own,
        oversubscribed=wanted > len(cores),
        device="cuda" if on_gpu else "cpu",
        backend=backend,
    )


def place_on_nodes(
    nodes: Sequence[Node], *, processes: int, threads_per_worker: int, cores: Sequence[int], gpus: int, backend: str
) -> Placement:
    """The same over nodes that are alike, each with these cores and GPUs: on each its workers share its cores."""
    most = max(node.processes for node in nodes)
    on_each = place(
        world_size=most,
        processes=most,
        threads_per_worker=threads_per_worker,
        cores=cores,
        gpus=gpus,
        backend=backend,
    )
    own = tuple(on_each.cores[worker] for node in nodes for worker in range(node.processes))
    return on_each.model_copy(update={"processes": processes, "cores": own})


def default_threads(cores: int, largest_world: int) -> int:
    """Threads per worker when the user did not choose: the cores, shared by the largest world of the study."""
    return max(1, cores // largest_world)
