"""Which cores, and how many threads, each worker gets; the same for every cell of a study (method.md §8)."""

from collections.abc import Sequence

from worldsize.launch.job import Node
from worldsize.measure.cores import Cores, as_cores
from worldsize.results.records import Placement, WarningRecord


def place(
    *,
    world_size: int,
    processes: int,
    threads_per_worker: int,
    cores: Cores | Sequence[int],
    gpus: int,
    backend: str,
    nodes: Sequence[Node] = (),
) -> Placement:
    """Give each worker its own cores, whole ones first; more threads than there is room for are oversubscribed.

    Then come the siblings of cores that are taken, and where these end it goes round. `cores` are those that this
    process may use, plain numbers for whole cores, and `gpus` how many devices there are; over several `nodes`, which
    are alike, those of each of them. With GPUs, more workers than devices cannot run: that is the caller's check.
    """
    cores = as_cores(cores)
    if nodes:
        world_size = max(node.processes for node in nodes)  # what follows is of the fullest
    wanted = world_size * threads_per_worker
    ring = [cores.numbers[i % len(cores.numbers)] for i in range(wanted)]
    siblings = frozenset(cores.numbers[cores.whole :])
    own = tuple(tuple(ring[i * threads_per_worker : (i + 1) * threads_per_worker]) for i in range(world_size))
    if nodes:
        own = tuple(own[worker] for node in nodes for worker in range(node.processes))
    on_gpu = gpus > 0 and backend != "gloo"
    if backend == "auto":
        backend = "nccl" if on_gpu else "gloo"
    return Placement(
        processes=processes,
        threads_per_worker=threads_per_worker,
        cores=own,
        oversubscribed=wanted > cores.room,
        on_siblings=tuple(worker for worker, its in enumerate(own) if not siblings.isdisjoint(its)),
        room_cores=cores.room,
        device="cuda" if on_gpu else "cpu",
        backend=backend,
    )


def default_threads(cores: int, largest_world: int) -> int:
    """Threads per worker when the user did not choose: `cores`, which is Cores.threads, shared by the largest world."""
    return max(1, cores // largest_world)


def oversubscribed(cell_id: str, world_size: int, placement: Placement) -> list[WarningRecord]:
    """The warning of a cell whose workers have more threads than there are cores; else none."""
    if not placement.oversubscribed:
        return []
    threads = world_size * placement.threads_per_worker
    have = placement.room_cores or len({core for cores in placement.cores for core in cores})
    siblings = len(placement.on_siblings)
    shared = f"; {siblings} worker(s) sit on second threads of cores that are taken" if siblings else ""
    text = (
        f"{cell_id}: {threads} threads on {have:g} core(s){shared}; its speed-up says nothing about {threads} cores "
        "and is withheld (--allow-oversubscribed prints it)"
    )
    return [WarningRecord(code="oversubscribed", message=text)]
