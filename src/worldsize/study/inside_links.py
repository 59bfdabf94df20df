"""What the link between workers that others have started can do; measured in the group that they already are."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from worldsize.analysis.comm_report import comm_warnings
from worldsize.collectives.bench import Bench, ready
from worldsize.config import CommSettings, StudySettings
from worldsize.measure.accelerator import give_back_memory
from worldsize.measure.limits import forget_peak
from worldsize.measure.machine import provenance, snapshot_host
from worldsize.ranks.host_collectives import agree, gather
from worldsize.ranks.setup import Rank
from worldsize.ranks.turns import Reply, Turn, read_replies
from worldsize.results.comm_records import AllReduceCost
from worldsize.results.folder import load_run, write_comm
from worldsize.results.records import Placement, WarningRecord
from worldsize.study.comm import Found, Silence, comm_record, take_samples
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
    apart = int(os.environ.get("LOCAL_WORLD_SIZE", rank.processes)) < rank.processes
    if agree(rank.rank == 0 and needed(load_run(folder), settings), rank.processes):
        for wanted in wanted_links(settings, cells, apart=apart):
            placement = next(c.placement for c in cells if c.settings.world_size == wanted.world_size)
            found = _found(wanted, placement, rank, device)
            if found is not None:
                origin = provenance(command, host=snapshot_host(with_gpus=False))
                record = comm_record(wanted, found, placement, origin)
                write_comm(folder, record)
                warnings += comm_warnings(record)
        if device.type != "cpu":  # what the largest messages took is no memory of training
            give_back_memory(device)
            forget_peak(device)
    costs = link_costs(load_run(folder)) if rank.rank == 0 else {}
    shared = agree({str(n): cost.model_dump(mode="json") for n, cost in costs.items()}, rank.processes)
    return {int(n): AllReduceCost.model_validate(cost) for n, cost in shared.items()}, warnings


def _found(wanted: CommSettings, placement: Placement, rank: Rank, device: torch.device) -> Found | None:
    """What all ranks have measured, on rank 0: it alone decides what is timed next, and tells the others."""
    begun_s = time.monotonic()
    there = read_replies(gather(ready(placement, device).model_dump(mode="json"), rank.processes))
    bench = Bench(device)

    def together(turn: Turn) -> tuple[Turn, list[Reply]]:
        agreed = Turn.model_validate(agree(turn.message(), rank.processes))
        return agreed, read_replies(gather(bench.do(agreed).model_dump(mode="json"), rank.processes))

    end = Turn(op="finish")
    if rank.rank == 0:
        found = take_samples(wanted, there, lambda turn: together(turn)[1], begun_s, Silence())
        together(end)
        return found
    while together(end)[0] != end:  # what is given here is not looked at
        pass
    return None
