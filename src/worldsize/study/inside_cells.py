"""The cells of a study whose workers others have started, placed on this node; it may have bound each rank already."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from worldsize.config import StudySettings
from worldsize.errors import UsageError
from worldsize.launch.placement import default_threads, place
from worldsize.measure.cores import usable_cores
from worldsize.measure.machine import allowed_cores
from worldsize.ranks.host_collectives import gather
from worldsize.ranks.setup import Rank
from worldsize.results.records import Findings, Placement, WarningRecord
from worldsize.study.plan import PlannedCell, make_plan

Masks = Sequence[Sequence[int]]
"""The logical CPUs that each rank of a node may run on."""


@dataclass(frozen=True)
class Bound:
    """Ranks that were started bound to cores of their own (`srun --cpu-bind`, `torchrun --numa-binding`)."""

    masks: Masks
    threads: int
    """As many have room on the cores of each rank of the group."""


def bound_here(rank: Rank) -> Bound | None:
    """How the ranks of this node are bound; None unless no two ranks of any node share a core.

    All ranks call it together.
    """
    nodes: dict[int, list[list[int]]] = {}
    for first, own in gather([rank.rank - rank.local_rank, allowed_cores()], rank.processes):
        nodes.setdefault(first, []).append(own)
    if len(nodes) == rank.processes or not all(map(are_apart, nodes.values())):
        return None
    masks = nodes[rank.rank - rank.local_rank]
    return Bound(masks, threads=min(gather(room_of_each(masks), rank.processes)))


def are_apart(masks: Masks) -> bool:
    """Whether no two of them have a CPU in common."""
    return len(set(chain(*masks))) == sum(map(len, masks))


def room_of_each(masks: Masks, root: Path = Path("/")) -> int:
    """Threads that each rank of a node can have, at least one: on its own cores, and of what all of them share."""
    together = usable_cores(sorted(chain(*masks)), root)
    return max(1, min(together.threads // len(masks), *(usable_cores(own, root).threads for own in masks)))


def each_on_its_own(placement: Placement, masks: Masks, root: Path = Path("/")) -> Placement:
    """The placement of a node's ranks, with each of them where it is bound."""
    threads, rings = placement.threads_per_worker, [usable_cores(own, root).numbers for own in masks]
    cores = tuple(tuple(ring[k % len(ring)] for k in range(threads)) for ring in rings)
    used = usable_cores(sorted({*chain(*cores)}), root)
    siblings = frozenset(used.numbers[used.whole :])
    return placement.model_copy(
        update={
            "cores": cores,
            "oversubscribed": threads * len(masks) > used.room,
            "on_siblings": tuple(worker for worker, its in enumerate(cores) if not siblings.isdisjoint(its)),
            "room_cores": usable_cores(sorted(chain(*masks)), root).room,
        }
    )


def cells_here(
    settings: StudySettings, findings: Findings, rank: Rank, bound: Bound | None = None
) -> tuple[list[PlannedCell], list[WarningRecord]]:
    """The cells, placed on this node, whose local workers share its cores; those of the whole group come last.

    A strategy with several workers in one process cannot have them on several nodes: it is left out, with a warning.
    """
    on_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = usable_cores(allowed_cores())
    share = bound.threads if bound else default_threads(cores.threads, on_node)
    threads = settings.threads_per_worker or share
    settings = settings.model_copy(update={"threads_per_worker": threads})
    every_gpu = findings.model_copy(update={"gpus": findings.gpus * rank.processes})
    # What whoever started the ranks gave to one is all that one has here.
    planned = [cell for cell in make_plan(settings, every_gpu, cores) if not cell.alone]
    local, alone = (
        place(
            world_size=workers,
            processes=workers,
            threads_per_worker=threads,
            cores=cores,
            gpus=len(findings.gpus),
            backend=settings.backend,
        )
        for workers in (on_node, 1)
    )
    local = each_on_its_own(local, bound.masks) if bound else local
    first = rank.rank - rank.local_rank
    # Where a rank is bound, the cores of others are not for it to choose from; rank 0 keeps the record of all.
    told = (rank.local_rank,) if bound and rank.rank else range(on_node)
    own = tuple(local.cores[worker - first] if worker - first in told else () for worker in range(rank.processes))
    shared = tuple(first + worker for worker in local.on_siblings)
    together = local.model_copy(update={"processes": rank.processes, "cores": own, "on_siblings": shared})
    cells = [
        replace(cell, placement=alone if cell.settings.world_size == 1 else together)
        for cell in planned
        if cell.placement.processes == cell.settings.world_size
    ]
    if not any(cell.settings.world_size == rank.processes for cell in cells):
        names = ", ".join(settings.strategies)
        raise UsageError(f"strategy {names} runs in one process; start it on one node, without torchrun")
    absent = [cell.id for cell in planned if cell.placement.processes != cell.settings.world_size]
    message = f"left out: {', '.join(absent)}; it runs in one process, so its workers cannot be on different nodes."
    warnings = [WarningRecord(code="left-out", message=message)] if absent else []
    return cells, warnings
