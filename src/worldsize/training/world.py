"""The world that a strategy works in, from who this process is and what was planned."""

import torch

from worldsize.config import CellSettings
from worldsize.ranks.setup import Rank, group_of
from worldsize.results.records import Placement
from worldsize.strategies import Channel, Observer, World


def world_of(rank: Rank, settings: CellSettings, placement: Placement, device: torch.device, seen: Observer) -> World:
    """The world that the strategy of this process works in; `seen` observes its messages."""
    return World(
        channel=Channel(rank.rank, rank.processes, seen),
        world_size=settings.world_size,
        group=group_of(rank.processes),
        device=device,
        cores=placement.cores,
        threads_per_worker=placement.threads_per_worker,
        share_buffers="buffers" not in settings.leave_out,
    )
