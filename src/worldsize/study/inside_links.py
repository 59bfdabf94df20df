"""What the link between workers that others have started can do; measured in the group that they already are."""

from collections.abc import Sequence
from pathlib import Path

import torch

from worldsize.analysis.interfaces import slow_peers
from worldsize.collectives.bench import Task, answer
from worldsize.config import StudySettings
from worldsize.measure.machine import provenance, snapshot_host
from worldsize.ranks.exchange import agree, gather
from worldsize.ranks.setup import Rank
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.folder import load_run, write_comm
from worldsize.results.records import WarningRecord
from worldsize.study.comm import comm_record, sizes_up_to
from worldsize.study.links import link_costs, needed, wanted_links
from worldsize.study.plan import PlannedCell


def measure_inside(
    folder: Path,
    settings: StudySettings,
    cells: Sequence[PlannedCell],
    rank: Rank,
    device: torch.device,
    command: Sequence[str],
) -> tuple[dict[int, AllReduceCost], list[WarningRecord]]:
    """Cost of an all-reduce by world size, on every rank, and what is to be warned of; all ranks call it together.

    Rank 0 writes the record of the benchmark, where there is none yet.
    """
    warnings = []
    if agree(rank.rank == 0 and needed(load_run(folder), settings), rank.processes):
        for wanted in wanted_links(settings, cells):
            placement = next(c.placement for c in cells if c.settings.world_size == wanted.world_size)
            task = Task(
                collectives=list(wanted.collectives),
                sizes_bytes=sizes_up_to(wanted.top_bytes),
                samples=wanted.samples,
                placement=placement,
            )
            replies = gather(answer(task, device).model_dump(mode="json"), rank.processes)
            if rank.rank == 0:
                origin = provenance(command, host=snapshot_host(with_gpus=False))
                record = comm_record(replies, placement, None, origin)
                write_comm(folder, record)
                slow = slow_peers(record)
                warnings += [slow] if slow else []
    costs = link_costs(load_run(folder)) if rank.rank == 0 else {}
    told = agree({str(n): cost.model_dump(mode="json") for n, cost in costs.items()}, rank.processes)
    return {int(n): AllReduceCost.model_validate(cost) for n, cost in told.items()}, warnings
